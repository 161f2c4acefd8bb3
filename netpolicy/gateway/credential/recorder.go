package credential

import "proctor/audit"

// A Recorder takes down what became of a connection, and what was taken out of its answers. It
// is called from many goroutines.
type Recorder interface {
	Flow(audit.Flow)
	Scrub(audit.Scrub)
}
