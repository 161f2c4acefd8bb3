// Package bench measures Proctor against what it is made of, in pairs and in one run, and
// reports ratios of medians. `make bench` runs it; every number it prints is a metric of a
// benchmark, so that benchstat can compare two of its outputs.
package bench
