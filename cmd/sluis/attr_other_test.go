//go:build !linux

package main

import "syscall"

// dieWithTest has no way here to bind a child process to the test's own.
func dieWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
