// Package spikes is a set of records of days on which runs tried to reach what they may not, some
// of them under attack, with labels that say which. It is what rules for alarms are measured
// against, and does not know them.
//
// Everything is drawn from fixed seeds: a scenario is the same each time.
package spikes
