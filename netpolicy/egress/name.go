package egress

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// RFC 1035: what fits in a question, without the last dot.
const (
	maxName  = 253
	maxLabel = 63
)

// maxSpelling bounds what is looked at: a name of maxName bytes in ASCII takes no more in UTF-8.
const maxSpelling = 1024

// international is IDNA as clients look names up (UTS 46, not transitional). Hyphens and the
// set of ASCII characters are left to checkLabel: names such as r3---sn-a.example and
// _dmarc.example are in use.
var international = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(),
	idna.StrictDomainName(false), idna.CheckHyphens(false))

// Canonical is the one spelling of a host name: lower case, IDNA in ASCII, without the last
// dot. What is no host name is an error that shows at most a part of it, quoted: addresses in
// any notation, empty labels, labels over 63 and names over 253 bytes, and characters other
// than letters, digits, hyphens inside a label, and underscores.
func Canonical(name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("the host name is empty")
	}
	if len(name) > maxSpelling {
		return "", badName(name, "is longer than %d bytes", maxName)
	}
	ascii := name
	if !isASCII(name) {
		if !utf8.ValidString(name) {
			return "", badName(name, "is not UTF-8")
		}
		mapped, err := international.ToASCII(name)
		if err != nil || !isASCII(mapped) {
			return "", badName(name, "is no internationalized name that IDNA takes")
		}
		ascii = mapped
	}
	ascii = strings.TrimSuffix(strings.ToLower(ascii), ".")
	if len(ascii) > maxName {
		return "", badName(name, "is longer than %d bytes", maxName)
	}
	encoded, last := false, ""
	for label := range strings.SplitSeq(ascii, ".") {
		if why := checkLabel(label); why != "" {
			return "", badName(name, "%s", why)
		}
		encoded = encoded || strings.HasPrefix(label, "xn--")
		last = label
	}
	if numeric(last) {
		return "", badName(name, "is an address, not a name")
	}
	if encoded {
		// A label that decodes to something with another spelling would be a second one.
		if again, err := international.ToASCII(ascii); err != nil || again != ascii {
			return "", badName(name, "has a label that is no proper IDNA")
		}
	}
	return ascii, nil
}

// checkLabel says what is wrong with a label in lower case.
func checkLabel(label string) string {
	switch {
	case label == "":
		return "has an empty label"
	case len(label) > maxLabel:
		return fmt.Sprintf("has a label of more than %d bytes", maxLabel)
	case label[0] == '-' || label[len(label)-1] == '-':
		return "has a label that begins or ends with a hyphen"
	}
	for i := range len(label) {
		switch c := label[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return fmt.Sprintf("has %q, which no host name has", c)
		}
	}
	return ""
}

// numeric reports whether the last label makes an address of the whole for one resolver or
// other (inet_aton, WHATWG): no top-level domain does.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func badName(name, format string, args ...any) error {
	return fmt.Errorf("%q %s", clip(name), fmt.Sprintf(format, args...))
}

// clip shortens what hostile code or a file sent, so that an error stays one readable line.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// literal reads an address in the notations that people write for a host, also with a port.
func literal(s string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr(), true
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return a, err == nil
}
