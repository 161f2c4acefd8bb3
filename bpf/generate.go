package bpf

//go:generate sh kern/generate.sh
