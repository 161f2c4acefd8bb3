// Package ordinary holds the tests that honest programs do not notice the box they run in.
//
// The programs are in testdata, a directory for each language. They check what they do
// themselves and end with "ok". Those for the shipped images run with all root tests. The
// rest, CPython's own tests and languages that no shipped image has, need the image of
// images/ordinary.yaml, whose making takes longer than the tests: `make test-ordinary`
// builds it and sets PROCTOR_ORDINARY to where it is. docs/ordinary-code.md has the results.
package ordinary
