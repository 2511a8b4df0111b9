// Package pgserver runs a private PostgreSQL cluster as a child process.
//
// One Server owns one directory. The directory holds:
//
//	lock    held with flock while a Server of any process uses the directory
//	data/   the cluster, made by initdb on the first start
//	run/    the unix socket (in a temporary directory where the path is too long)
//
// The cluster listens on no network address. Whoever can enter the socket's
// directory (mode 0700) is trusted, as the only role, "sluis".
//
// Under root, initdb and postgres run as the user postgres, else nobody,
// because PostgreSQL refuses to run as root; that user has to be able to reach
// the directory, and ErrClosedDir says so where it cannot.
//
// The child dies with its parent: on Linux by a parent-death signal, elsewhere
// it is stopped by the next Start on the same directory. A Start after a crash
// of the parent, of the child or of both recovers from the write-ahead log.
package pgserver
