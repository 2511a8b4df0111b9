package main

import "syscall"

// dieWithTest makes a child process end with the test's own.
func dieWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
