// Package supervisor owns the life of every run: admit, prepare, launch, watch, collect,
// seal, destroy.
//
// [New] puts a supervisor together and [Supervisor.Start] brings it up: it sweeps what an
// earlier one left, then takes runs through [Supervisor.Run]. [Supervisor.Stop] takes no
// more, ends the ones there are within a bound, and joins everything it started. The
// containerd client and the sensor given to New stay the caller's, who closes them after Stop.
//
// In a run, whatever is acquired is registered for release on the next line, and released
// in reverse order whether or not the caller is still there.
package supervisor
