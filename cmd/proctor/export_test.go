package main

// Main is the program's entry point, for scripts that run the test binary as proctor.
func Main() { main() }
