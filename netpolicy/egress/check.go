package egress

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"proctor/strictyaml"
)

// What a policy holds at most: far above what people write, and little to search for every
// name that hostile code asks for.
const (
	maxGrants      = 1000
	maxPorts       = 16
	maxCredentials = 100
)

// DefaultPort is what a host is granted on whose grant names no port.
const DefaultPort = 443

// Check brings the policy into its one form, with canonical names and defaults filled in, and
// refuses what makes no sense or could not be enforced. The error is a [strictyaml.FieldError]
// that names the field as seen from the policy, the value, the rule and the fix. After an error
// the policy may have been changed in part.
func (p *Policy) Check() error {
	if n := len(p.Allow); n > maxGrants {
		return strictyaml.BadField("allow", "has %d entries, at most %d are taken: write wildcards or ranges", n, maxGrants)
	}
	seen := map[string]int{}
	for i := range p.Allow {
		g, field := &p.Allow[i], fmt.Sprintf("allow[%d]", i)
		if err := g.check(field); err != nil {
			return err
		}
		for _, port := range g.Ports {
			one := g.on(port)
			if first, ok := seen[one]; ok {
				return strictyaml.BadField(field, "%s is granted by allow[%d] already: remove one", one, first)
			}
			seen[one] = i
		}
	}
	if err := p.checkCredentials(); err != nil {
		return err
	}
	return p.Limits.check()
}

func (g *Grant) check(field string) error {
	switch {
	case g.Host != "" && g.CIDR.IsValid():
		return strictyaml.BadField(field, "has both host %q and cidr %s: write an entry for each", clip(g.Host), g.CIDR)
	case g.Host != "":
		if err := g.checkHost(field); err != nil {
			return err
		}
	case g.CIDR.IsValid():
		if err := g.checkCIDR(field); err != nil {
			return err
		}
	default:
		return strictyaml.BadField(field, "names nothing: write host: or cidr:, or remove the entry")
	}
	return g.checkPorts(field)
}

func (g *Grant) checkHost(field string) error {
	host, err := grantHost(g.Host)
	if err != nil {
		return strictyaml.BadField(field+".host", "%v", err)
	}
	g.Host = host
	switch g.Protocol {
	case "":
		g.Protocol = "tcp"
	case "tcp":
	case "udp":
		return strictyaml.BadField(field+".protocol", `"udp" for a host: names are reached over tcp alone; for udp write the server's addresses as cidr`)
	default:
		return badProtocol(field, g.Protocol)
	}
	if g.Ports == nil {
		g.Ports = []uint16{DefaultPort}
	}
	return nil
}

// grantHost is the canonical form of a name or a wildcard.
func grantHost(s string) (string, error) {
	if a, ok := literal(s); ok {
		return "", fmt.Errorf("%q is an address, not a name: write it as cidr: %s", clip(s), single(a))
	}
	switch {
	case strings.Contains(s, "/"):
		return "", fmt.Errorf("%q is a URL or a range: write the host's name alone, such as api.example.com, or a range as cidr", clip(s))
	case strings.Contains(s, ":"):
		return "", fmt.Errorf("%q has a port: write the name alone, and the port in ports, such as [443]", clip(s))
	}
	rest, wild := strings.CutPrefix(s, "*.")
	if strings.Contains(rest, "*") {
		return "", fmt.Errorf("%q has * elsewhere than as its whole first label: write names, or *. and a name, such as *.example.com", clip(s))
	}
	name, err := Canonical(rest)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: write a name such as api.example.com", err)
	case name == "localhost" || under(name, "localhost"):
		return "", fmt.Errorf("%q is the run itself: it needs no grant", clip(s))
	case !wild:
		return name, nil
	case !strings.Contains(name, "."):
		return "", fmt.Errorf("%q is everything under a top-level domain: name the domain, such as *.example.%s", clip(s), clip(name))
	}
	if suffix, icann := publicsuffix.PublicSuffix(name); icann && suffix == name {
		return "", fmt.Errorf("%q is everything under a public suffix, where anybody registers names: name the domain, such as *.example.%s", clip(s), name)
	}
	return "*." + name, nil
}

func single(a netip.Addr) netip.Prefix {
	a = a.WithZone("").Unmap()
	return netip.PrefixFrom(a, a.BitLen())
}

func (g *Grant) checkCIDR(field string) error {
	p := plain(g.CIDR)
	switch {
	case p != p.Masked():
		return strictyaml.BadField(field+".cidr", "%q has bits set past its length: write %s, or %s for the one address", g.CIDR, p.Masked(), single(p.Addr()))
	case within(unreachable, p):
		return strictyaml.BadField(field+".cidr", "%q holds no address of one host: remove the entry", g.CIDR)
	case g.WebSocket:
		return strictyaml.BadField(field+".websocket", "is for a host: connections to addresses are passed on as they are, remove it")
	case g.Ports == nil:
		return strictyaml.BadField(field, "cidr %s has no ports: name them, such as ports: [5432]", p)
	}
	g.CIDR = p
	switch g.Protocol {
	case "":
		g.Protocol = "tcp"
	case "tcp", "udp":
	default:
		return badProtocol(field, g.Protocol)
	}
	return nil
}

func badProtocol(field, protocol string) error {
	return strictyaml.BadField(field+".protocol", "%q: write tcp, or for a cidr tcp or udp", clip(protocol))
}

func (g *Grant) checkPorts(field string) error {
	field += ".ports"
	if n := len(g.Ports); n == 0 || n > maxPorts {
		return strictyaml.BadField(field, "has %d ports: name 1 to %d, such as [443]", n, maxPorts)
	}
	for i, port := range g.Ports {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case port == 0:
			return strictyaml.BadField(at, "0 is no port: write one from 1 to 65535")
		case port == 53 || port == 853:
			// Another resolver would tell of names that this one refuses.
			return strictyaml.BadField(at, "%d is DNS, for which every run has a resolver of its own: remove it", port)
		case slices.Contains(g.Ports[:i], port):
			return strictyaml.BadField(at, "%d is listed twice: remove one", port)
		}
	}
	g.Ports = sorted(g.Ports)
	return nil
}

// defaults are what a run gets where its profile says nothing.
var defaults = Limits{
	Queries: 10_000, Names: 100, Connections: 100, BytesUp: 100 << 20, BytesDown: 1 << 30, Idle: 5 * time.Minute,
}

// most is what the gateway can keep: descriptors, synthetic addresses, timers.
var most = Limits{
	Queries: 100_000_000, Names: 10_000, Connections: 10_000, BytesUp: 1 << 53, BytesDown: 1 << 53, Idle: 24 * time.Hour,
}

func (l *Limits) check() error {
	return cmp.Or(
		checkLimit("queries", &l.Queries, defaults.Queries, most.Queries),
		checkLimit("names", &l.Names, defaults.Names, most.Names),
		checkLimit("connections", &l.Connections, defaults.Connections, most.Connections),
		checkLimit("bytes_up", &l.BytesUp, defaults.BytesUp, most.BytesUp),
		checkLimit("bytes_down", &l.BytesDown, defaults.BytesDown, most.BytesDown),
		checkLimit("idle", &l.Idle, defaults.Idle, most.Idle),
	)
}

func checkLimit[T int | int64 | time.Duration](name string, value *T, def, most T) error {
	if *value == 0 {
		*value = def
	}
	if *value < 0 || *value > most {
		return strictyaml.BadField("limits."+name, "%v is not from 1 to %v: write such a value, or leave it out for %v", *value, most, def)
	}
	return nil
}
