// Package s3server runs an S3 server with versioning and real Object Lock on
// this machine, for installations without a store of their own and for tests:
// the Versity gateway over a directory, as a child process.
//
// The child is this very binary, started again, because the gateway changes the
// working directory of its process and is one to a process. So main and TestMain
// have to call ChildMain before anything else.
//
// The directory holds:
//
//	format       in which way locks are stored; never opened in another way
//	lock         held with flock by the running child
//	credentials  the access key, made at random on the first start (mode 0600)
//	address      where the running server listens
//	objects/     current versions; locks are extended attributes of the files
//	versions/    earlier versions
//
// The child holds what the gateway alone does not: one lock per key around
// writes, deletes and changes of a lock; the retention part of the object before
// it becomes visible; legal hold and COMPLIANCE checked again at the delete
// itself; the bucket's default retention stamped at the write; every write on the
// disk before it is answered. Copies and multipart uploads are not offered.
//
// The child ends with its parent, however that ends, and may itself be killed at
// any moment: an acknowledged object is there and locked after the next start.
//
// Locks hold against whoever speaks S3, the owner of the access key included.
// They do not hold against this machine's root and the user that runs the
// server, who can change the files: for that, use a store run by others.
package s3server
