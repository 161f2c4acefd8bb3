// Package doctor finds out whether a host can run Proctor, by trying.
//
// [Run] makes every check there is and returns what it found; it prints nothing,
// changes nothing and leaves nothing behind. What it makes for a trial (a namespace, a
// mount, a program, a directory) is gone when it returns. Mounts are made in a mount
// namespace of one thread that ends with the trial, so nobody else ever sees them.
//
// Run works for any user. What can't be tried without root is a warning that says so.
package doctor
