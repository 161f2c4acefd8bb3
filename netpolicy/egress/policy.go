package egress

import (
	"net/netip"
	"time"
)

// Policy is the network side of a profile. [Policy.Check] brings it into the form that its
// methods work on; after that it is read only, by any number of goroutines.
type Policy struct {
	Allow       []Grant      `yaml:"allow" json:"allow,omitempty"`
	Credentials []Credential `yaml:"credentials" json:"credentials,omitempty"`
	Limits      Limits       `yaml:"limits" json:"limits"`
}

// A Grant opens a name or a range of addresses. Exactly one of Host and CIDR is set. What
// several grants open adds up.
type Grant struct {
	// Host is a name, or "*." and a name, which stands for every name with one or more labels
	// before it and not for the name itself. It is kept in its one spelling: lower case, ASCII
	// (IDNA), without the last dot.
	Host string `json:"host,omitempty"`
	// CIDR is a range of addresses. It is the only way to private, link-local, loopback and
	// metadata addresses. Its bits past the length are 0; an IPv4-mapped one is kept as IPv4.
	CIDR netip.Prefix `json:"cidr,omitzero"`
	// Ports are at most 16, kept in order. Default for a host: 443. A range has no default.
	Ports []uint16 `json:"ports"`
	// Protocol is tcp, the default, or udp, which a range alone may have.
	Protocol string `json:"protocol"`
	// WebSocket lets a host whose connections end at the gateway switch protocols.
	WebSocket bool `json:"websocket,omitempty"`
}

// A Credential is a secret that the gateway adds to what a run sends to one host.
type Credential struct {
	Name string `json:"name"`
	Host string `json:"host"` // a plain name that Allow grants, on port 443
	// One of these says where the secret goes.
	Header      string `json:"header,omitempty"`      // a field's name
	Query       string `json:"query,omitempty"`       // a parameter's name
	Basic       string `json:"basic,omitempty"`       // a user's name; the secret is the password
	Placeholder string `json:"placeholder,omitempty"` // what the code sends in its place, in header fields and the query
	// Format is what becomes of the secret in Header, which alone has one. Default: "{secret}".
	Format string `json:"format,omitempty"`
	Source Source `json:"source"`
	// Methods and Paths narrow what may be asked of the host; empty: anything. A path that
	// ends in * stands for every path with that beginning.
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
}

// A Source is where the supervisor finds a secret, anew for every run. One field is set.
type Source struct {
	File    string   `json:"file,omitempty"`
	Env     string   `json:"env,omitempty"`
	Command []string `json:"command,omitempty"`
}

// Limits of a run's network. Zero means the default.
type Limits struct {
	Queries     int           `json:"queries"`     // to the resolver; default 10,000
	Names       int           `json:"names"`       // different ones under all wildcards; default 100
	Connections int           `json:"connections"` // at a time; default 100
	BytesUp     int64         `json:"bytes_up"`    // towards the outside, in all; default 100 MiB
	BytesDown   int64         `json:"bytes_down"`  // towards the run, in all; default 1 GiB
	Idle        time.Duration `json:"idle"`        // after which a silent connection is closed; default 5 min
}

// A Decision is what the policy says of one destination.
type Decision struct {
	Allowed bool
	// Rule is the grant that decided, as its String says it, or why there is none, such as
	// "packages.example is not granted".
	Rule string
	// Grant is set where Allowed: the policy's own, not to be changed.
	Grant *Grant
}

// Synthetic addresses stand for granted names in a run, one of each family for each name. Those
// of IPv4 are of a range for benchmarks (RFC 2544), those of IPv6 of a local one (RFC 4193):
// nobody has them. The IPv6 address of a name ends in its IPv4 address.
var (
	Synthetic4 = netip.MustParsePrefix("198.18.0.0/15")
	Synthetic6 = netip.MustParsePrefix("fd70:726f:6374:6f72::/64")
)
