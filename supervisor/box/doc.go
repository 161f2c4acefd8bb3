// Package box is the contract between the supervisor and whatever isolates a run.
//
// A [Box] is made without knowing the code it will hold: [Runtime.Create] makes it,
// [Box.Start] brings its init up, which then waits. Code and inputs are attached to the
// waiting box, and [Box.Go] starts the program. So a box can be made ahead of time by
// the same steps as one made on demand.
//
// The caller of Create owns the box and must call [Box.Destroy], whatever happened in
// between; Destroy is safe in every state and may be called twice.
//
// The package also holds both ends of the protocol with the init inside a box: the C
// program in init/, and [Control] on the supervisor's side.
package box
