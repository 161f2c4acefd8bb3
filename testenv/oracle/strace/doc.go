// Package strace reads what strace(1) wrote, as far as it is needed to know what a program
// did. It reads one way of writing alone, [Options]: all processes in one file, strings and
// paths in hexadecimal, so that nothing that a program chose can be taken for the tracer's
// own punctuation; descriptors with the path that the kernel gives them; processes with
// their numbers here and in the program's PID namespace.
//
// [Read] is strict. A line that it does not understand is an error, since a call left out
// would make whoever is compared with it look complete.
package strace
