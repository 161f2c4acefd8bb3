// Package api is the supervisor's door: HTTP on a unix socket, and its client.
//
// Who calls is what the kernel says of the socket's other end. A caller's input files
// arrive as open descriptors beside the request's first byte (SCM_RIGHTS), never as paths,
// so that the supervisor opens nothing on anybody's behalf. What takes long answers with
// lines of JSON, so that curl and any language can follow.
//
//	POST /v1/runs                      a run; answers with Message lines, the last a verdict or an error
//	GET  /v1/runs                      the runs, newest first
//	GET  /v1/runs/RUN                  one run's request and verdict
//	GET  /v1/runs/RUN/code             its code, verbatim
//	GET  /v1/runs/RUN/events           its record
//	GET  /v1/runs/RUN/outputs/N        the Nth file of the verdict's outputs
//	POST /v1/runs/RUN/kill             ends it
//	GET  /v1/events                    what all runs do, live
//	GET  /v1/images                    what runs may use
//	GET  /v1/status                    how the supervisor is doing
//
// A [Server] belongs to whoever made it, who calls Shutdown. A [Client] holds nothing open.
package api
