// Package soak runs thousands of programs, many of them hostile, and counts what there is on the
// host before and after: nothing may grow. `make soak` does it and prints the table.
package soak
