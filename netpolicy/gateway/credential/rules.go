package credential

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"proctor/netpolicy/egress"
)

// A refusal is an answer to a request that is not sent on.
type refusal struct {
	status  int
	reason  string // one line, for the code that asked and for the record
	claimed string // host that a misdirected request is for
}

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, reason: fmt.Sprintf(format, args...)}
}

// quoted is how something that the code sent stands in a reason: bounded and on one line.
func quoted(s string) string {
	if len(s) > 200 {
		return fmt.Sprintf("%.200q...", s)
	}
	return fmt.Sprintf("%q", s)
}

// checkMethod refuses what no credential is for. TRACE would have the upstream send the secret
// back, and what goes through CONNECT is no request.
func checkMethod(r *http.Request) *refusal {
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		return refuse(http.StatusMethodNotAllowed, "method %s is not allowed to a host that has a credential", r.Method)
	}
	return nil
}

// checkHost refuses a request for another host than the one that the connection is for.
func checkHost(r *http.Request, name string) *refusal {
	other := func(claimed string) *refusal {
		no := refuse(http.StatusMisdirectedRequest, "this connection is for %s and not for %s: connect to the host that is meant", name, quoted(claimed))
		no.claimed = claimed
		return no
	}
	if !sameHost(r.Host, name) {
		return other(r.Host)
	}
	for _, h := range r.Header["Host"] { // HTTP/2 has :authority, and may have both
		if !sameHost(h, name) {
			return other(h)
		}
	}
	if r.URL.IsAbs() && (r.URL.Scheme != "https" || !sameHost(r.URL.Host, name) || r.URL.User != nil) {
		return other(r.URL.Scheme + "://" + r.URL.Host)
	}
	return nil
}

func sameHost(host, name string) bool {
	host = strings.TrimSuffix(host, ":443")
	return strings.EqualFold(strings.TrimSuffix(host, "."), name)
}

// overrides are fields by which some servers take another method or path than the request's.
var (
	methodOverrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}
	pathOverrides   = []string{"X-Original-Url", "X-Rewrite-Url", "X-Original-Uri", "X-Forwarded-Uri", "X-Forwarded-Path", "X-Forwarded-Prefix"}
)

// checkRules refuses what the credential's own rules do not allow.
func checkRules(r *http.Request, c *egress.Credential) *refusal {
	if len(c.Methods) > 0 {
		if !slices.Contains(c.Methods, r.Method) {
			return refuse(http.StatusForbidden, "credential %s allows %s: method %s is not among them", c.Name, allowed(c), quoted(r.Method))
		}
		if name := anyOf(r.Header, methodOverrides); name != "" {
			return refuse(http.StatusForbidden, "credential %s allows %s: field %s would change the method", c.Name, allowed(c), name)
		}
	}
	if len(c.Paths) > 0 {
		if why := ambiguous(r.URL.EscapedPath(), r.URL.Path); why != "" {
			return refuse(http.StatusForbidden, "credential %s allows %s: path %s has %s, which servers read differently", c.Name, allowed(c), quoted(r.URL.EscapedPath()), why)
		}
		if !slices.ContainsFunc(c.Paths, func(p string) bool { return matchPath(p, r.URL.Path) }) {
			return refuse(http.StatusForbidden, "credential %s allows %s: path %s is not among them", c.Name, allowed(c), quoted(r.URL.EscapedPath()))
		}
		if name := anyOf(r.Header, pathOverrides); name != "" {
			return refuse(http.StatusForbidden, "credential %s allows %s: field %s would change the path", c.Name, allowed(c), name)
		}
	}
	return nil
}

// allowed lists what a credential's rules allow.
func allowed(c *egress.Credential) string {
	var parts []string
	if len(c.Methods) > 0 {
		parts = append(parts, "methods "+strings.Join(c.Methods, ", "))
	}
	if len(c.Paths) > 0 {
		parts = append(parts, "paths "+strings.Join(c.Paths, ", "))
	}
	return strings.Join(parts, " and ")
}

// anyOf returns the first of the names that h has, also spelt with _ for -.
func anyOf(h http.Header, names []string) string {
	for name := range h {
		for _, n := range names {
			if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), n) {
				return n
			}
		}
	}
	return ""
}

// matchPath reports whether a path is what the rule says. Both are without escapes.
func matchPath(rule, path string) bool {
	if prefix, ok := strings.CutSuffix(rule, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return rule == path
}

// ambiguous says what in a path one server may read in another way than the next, so that what
// was matched would not be what is asked for; empty if nothing. It is given the path as it was
// sent and without its escapes.
func ambiguous(raw, path string) string {
	switch {
	case !strings.HasPrefix(path, "/"):
		return "no slash at the beginning"
	case !utf8.ValidString(path):
		return "bytes that are not UTF-8"
	case strings.Contains(path, "//"):
		return "an empty segment"
	case strings.Contains(path, `\`):
		return "a backslash"
	case strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "a control character"
	}
	for i := 0; i+2 < len(raw); i++ {
		if raw[i] != '%' {
			continue
		}
		switch byte(unhex(raw[i+1])<<4 | unhex(raw[i+2])) {
		case '/':
			return "an escaped slash"
		case '.':
			return "an escaped dot"
		case '%':
			return "an escaped percent sign"
		case ';':
			return "an escaped semicolon"
		}
	}
	for segment := range strings.SplitSeq(path, "/") {
		// Some servers drop what follows a semicolon before they look for dots.
		segment, _, _ = strings.Cut(segment, ";")
		if segment == "." || segment == ".." {
			return "a dot segment"
		}
	}
	return ""
}
