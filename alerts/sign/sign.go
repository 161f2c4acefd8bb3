// Package sign finds single acts of a run that somebody should hear of at once, however few
// they are.
package sign

import (
	"fmt"
	"hash/maphash"
	"net/netip"
	"strings"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"proctor/audit"
)

// A Kind is one sort of sign.
type Kind string

const (
	// Metadata is an attempt at a cloud's service that hands out credentials to whoever asks.
	Metadata Kind = "metadata"
	// Scrubbed is a credential in an answer of the host that it is for: it was taken out.
	Scrubbed Kind = "scrubbed"
	// Mismatch is traffic that says it is for another host than the connection.
	Mismatch Kind = "mismatch"
	// Finding is a contradiction of what the kernel and the gateway saw.
	Finding Kind = "finding"
	// Escape is a call that code has no use for but to leave a box or look out of it.
	Escape Kind = "escape"
	// Tunnel is many names, no two alike, with much in them below one domain: data in questions.
	Tunnel Kind = "tunnel"
	// Blind is a record that is not complete, or a run that ended because it could not be watched.
	Blind Kind = "blind"
)

// Kinds are all there are.
func Kinds() []Kind { return []Kind{Metadata, Scrubbed, Mismatch, Finding, Escape, Tunnel, Blind} }

// A Sign is one that was seen.
type Sign struct {
	Kind Kind
	Time time.Time
	Run  string
	What string // what it was, hostile where the code chose it
	// Subject is what signs have in common that are of one cause; empty: the run.
	Subject string
}

// escapes are refused calls that are signs. Others are refused, too, but libraries try them.
var escapes = map[string]bool{
	"bpf": true, "mount": true, "umount2": true, "pivot_root": true, "unshare": true, "setns": true, "ptrace": true,
	"process_vm_readv": true, "process_vm_writev": true, "pidfd_getfd": true, "open_by_handle_at": true, "open_tree": true, "move_mount": true,
	"fsopen": true, "fsmount": true, "fsconfig": true, "fspick": true, "mount_setattr": true, "init_module": true, "finit_module": true,
	"delete_module": true, "kexec_load": true, "kexec_file_load": true, "perf_event_open": true, "userfaultfd": true, "swapon": true,
	"reboot": true, "acct": true, "quotactl": true, "chroot": true, "mknod": true, "mknodat": true, "iopl": true, "ioperm": true,
	"add_key": true, "request_key": true, "keyctl": true,
}

// A Detector remembers the names that runs asked for. It is for one goroutine at a time. There is
// nothing to close.
type Detector struct {
	seed maphash.Seed
	runs *simplelru.LRU[string, *names]
	cost int // of what all runs have, in units
}

// New returns a Detector that has seen nothing.
func New() *Detector {
	d := &Detector{seed: maphash.MakeSeed()}
	d.runs, _ = simplelru.NewLRU[string, *names](maxRuns, nil) // it refuses sizes below 1 alone
	return d
}

// Looks reports whether an event may be a sign: what Observe does with another is nothing.
func Looks(e *audit.Event) bool {
	switch {
	case e.Query != nil:
		return e.Blocked() || deep(e.Query.Name)
	case e.Flow != nil:
		return e.Blocked() || e.Flow.Claimed != "" || deep(e.Flow.Name)
	}
	return e.Blocked() || e.Scrub != nil || e.Finding != nil || e.Refused != nil || e.End != nil
}

// deep reports whether a name may stand below a registrable domain. Only names that are granted,
// by a wildcard, are looked up outside, so data goes out in those.
func deep(name audit.Text) bool { return strings.Count(string(name), ".") >= 2 }

// Observe returns what an event is a sign of.
func (d *Detector) Observe(e *audit.Event) []Sign {
	var signs []Sign
	add := func(k Kind, what string) { signs = append(signs, Sign{Kind: k, Time: e.Time, Run: e.Run, What: what}) }
	switch {
	case e.Net != nil && e.Blocked():
		if at := metadataOf(audit.Text(e.Net.Address.String()), e.Net.Host); at != "" {
			add(Metadata, fmt.Sprintf("%s, %s port %d", at, e.Net.Protocol, e.Net.Port))
		}
	case e.Query != nil:
		if at := metadataOf(e.Query.Name); at != "" && e.Blocked() {
			add(Metadata, at+", by a question for the name")
		}
		if what := d.asked(e, e.Query.Name); what != "" {
			add(Tunnel, what)
		}
	case e.Flow != nil:
		if what := metadataOfFlow(e.Flow); what != "" {
			add(Metadata, what)
		} else if e.Flow.Name != "" && e.Flow.Claimed != "" {
			add(Mismatch, string(e.Flow.Name)+", for which the traffic says "+string(e.Flow.Claimed))
		}
		// Who asks a proxy asks no resolver.
		if what := d.asked(e, e.Flow.Name); what != "" {
			add(Tunnel, what)
		}
	case e.Scrub != nil:
		add(Scrubbed, fmt.Sprintf("%s, by %s in its %s", e.Scrub.Credential, e.Scrub.Name, e.Scrub.Where))
	case e.Finding != nil:
		f := e.Finding
		what := f.What
		if f.Address.IsValid() {
			what += fmt.Sprintf(", %s %s", f.Protocol, netip.AddrPortFrom(f.Address, f.Port))
		}
		add(Finding, fmt.Sprintf("%s (the kernel %d, the gateway %d)", what, f.Kernel, f.Gateway))
	case e.Refused != nil && escapes[e.Refused.Call]:
		add(Escape, e.Refused.Call)
	case e.End != nil:
		d.end(e.Run)
		switch {
		case e.End.Status == string(audit.StatusInterrupted):
			add(Blind, e.End.Reason)
			signs[len(signs)-1].Subject = "the supervisor"
		case e.End.Lost > 0 || e.End.Raced > 0:
			add(Blind, fmt.Sprintf("%s (events lost: %d, in doubt: %d)", e.End.Reason, e.End.Lost, e.End.Raced))
		}
	}
	return signs
}

// metadataOf returns the first of some targets that is a metadata service, with what it is where
// it is spelled otherwise.
func metadataOf(targets ...audit.Text) string {
	for _, t := range targets {
		switch at := metadata(t); at {
		case "":
		case string(t):
			return at
		default:
			return string(t) + " (" + at + ")"
		}
	}
	return ""
}

// metadataOfFlow says which metadata service a flow was for. What the traffic claims to be for was
// refused, whatever came of the connection.
func metadataOfFlow(f *audit.Flow) string {
	if at := metadataOf(f.Claimed); at != "" {
		return at + ", which the traffic says it is for"
	}
	if f.Decision != audit.Blocked {
		return ""
	}
	if at := metadataOf(f.Name); at != "" && f.Proxy {
		return at + ", by the proxy"
	}
	if at := metadataOf(f.Name, audit.Text(f.Address.String())); at != "" {
		return fmt.Sprintf("%s, %s port %d", at, f.Protocol, f.Port)
	}
	if at := metadataOf(audit.Text(f.Upstream.Addr().String())); at != "" {
		return at + ", which is where " + string(f.Name) + " leads"
	}
	return ""
}

// asked notes a name that a run asked for, and says what has become a tunnel with it. The names of
// addresses are long, asked for by whoever reads logs, and granted to nobody.
func (d *Detector) asked(e *audit.Event, asked audit.Text) string {
	name := strings.ToLower(strings.TrimSuffix(string(asked), "."))
	if _, ok := address(name); ok || strings.ContainsAny(name, ":/@%[") || e.Blocked() && strings.HasSuffix(name, ".arpa") {
		return ""
	}
	below, one := d.tunnel(e.Run, name)
	if one == nil {
		return ""
	}
	return fmt.Sprintf("%s, in %d names with %d bytes", below, one.names, one.bytes)
}
