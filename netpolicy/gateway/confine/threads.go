//go:build !cgo

package confine

var threads []string
