// Package objectstore keeps snapshots in an S3 bucket with versioning and Object
// Lock, so that what was written cannot be changed or removed before its time,
// not by us either.
//
// What it promises:
//
//   - Put writes a key at most once (If-None-Match: *): of two writers exactly
//     one wins and the other gets ErrExists. A writer whose answer was lost
//     recognises its own object and is told that it won.
//   - The body is checked on its way by SHA-256, and locked in COMPLIANCE mode
//     as it is written. The Receipt holds what the store says afterwards, not
//     what was asked for; a store that keeps less is an error.
//   - Errors are told apart by S3's error codes, never by HTTP statuses, and say
//     what to do.
//
// What it cannot promise: a lock holds against whoever speaks S3, so in AWS not
// even the account's root lifts it, while a store whose disks you can reach
// (package s3server) only refuses through its API.
//
// The lock's clock is the store's: retention counts in real time.
package objectstore
