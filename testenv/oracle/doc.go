// Package oracle tests that a run's record has everything and nothing else. One and the same
// box is watched by Proctor's programs in the kernel and by `strace -f`, attached from the
// host before the program starts; what they say is brought to the same words and compared
// as multisets. docs/sight.md says what is compared, and what is left out of the comparison
// and why.
//
// The programs, in testdata, are ones of everyday use, with scripts that make them open,
// start and connect. They need the image of images/oracle.yaml: `make test-oracle` builds it
// and sets PROCTOR_ORACLE to where it is.
//
// An act of a new kind is compared by one more entry in comparers.
package oracle
