package audit

import (
	"net/netip"
)

// Query is a question to the run's resolver, and what came of it.
type Query struct {
	Name     Text           `json:"name"`              // as it was asked for, without the last dot
	Type     string         `json:"type"`              // A, AAAA, HTTPS, TYPE65280, ...
	Protocol string         `json:"protocol"`          // udp or tcp
	Server   netip.AddrPort `json:"server"`            // whom the code meant to ask
	From     netip.Addr     `json:"client,omitzero"`   // the asking socket's, by which the process is found
	Client   uint16         `json:"client_port"`       // likewise
	Decision Decision       `json:"decision"`          // allowed: the name is granted, also where it has no address
	Rule     string         `json:"rule"`              // which rule decided
	Code     string         `json:"code"`              // of the answer: NOERROR, NXDOMAIN, SERVFAIL, ...
	Answers  []netip.Addr   `json:"answers,omitempty"` // synthetic addresses
}

// Flow is a connection to an address, as the gateway saw it.
type Flow struct {
	Protocol   string         `json:"protocol"` // tcp or udp
	Address    netip.Addr     `json:"address"`  // that the code connected to
	Port       uint16         `json:"port"`
	From       netip.Addr     `json:"client,omitzero"`   // the connecting socket's, by which the process is found
	Client     uint16         `json:"client_port"`       // likewise
	Proxy      bool           `json:"proxy,omitempty"`   // asked for through the explicit proxy
	Name       Text           `json:"name,omitempty"`    // that the address stands for, or that the proxy was asked for
	Claimed    Text           `json:"claimed,omitempty"` // what the traffic says it is for: SNI or Host, where that differs
	Decision   Decision       `json:"decision"`
	Rule       string         `json:"rule"`                 // which rule decided
	Upstream   netip.AddrPort `json:"upstream,omitzero"`    // that was connected to outside; of a name with forbidden addresses alone, their first
	Credential string         `json:"credential,omitempty"` // name of the one that was added
	Requests   int64          `json:"requests,omitempty"`   // of HTTP, where it was read
	BytesUp    int64          `json:"bytes_up"`             // towards the outside
	BytesDown  int64          `json:"bytes_down"`
	Count      int64          `json:"count,omitempty"` // of flows that this one stands for, if more than one
	DurationMS float64        `json:"duration_ms"`
	Error      string         `json:"error,omitempty"` // how it failed, such as "connection refused"
}

// Scrub says that an answer held a secret, which was taken out.
type Scrub struct {
	Credential string `json:"credential"`
	Name       Text   `json:"name"`  // host
	Where      string `json:"where"` // header, trailer or body
	Count      int64  `json:"count"`
}

// Finding is a contradiction between what the kernel and the gateway saw.
type Finding struct {
	What     string     `json:"what"`
	Protocol string     `json:"protocol"`
	Address  netip.Addr `json:"address"`
	Port     uint16     `json:"port"`
	Kernel   int64      `json:"kernel"`  // attempts that the kernel allowed
	Gateway  int64      `json:"gateway"` // flows or queries
}
