package relay

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Alerts of TLS (RFC 8446, 6.2).
const (
	alertAccessDenied     = 49
	alertDecode           = 50
	alertUnrecognizedName = 112
)

// answerTime bounds how long a client may take to read why it was refused.
const answerTime = 2 * time.Second

// alert tells a TLS client that it was refused, and ends the connection.
func (s *session) alert(description byte) {
	const fatal = 2
	s.client.SetWriteDeadline(time.Now().Add(answerTime))
	// A client that is gone needs no answer.
	_, _ = s.client.Write([]byte{21, 3, 3, 0, 2, fatal, description})
	closeAfter(s.client)
}

// A refusal is why a request is not passed on.
type refusal struct {
	status int
	rule   string
	host   string // that the request claims to be for, where that is the reason
}

func refuse(status int, rule string) *refusal { return &refusal{status: status, rule: rule} }

// answer tells an HTTP client that it was refused, and ends the connection.
func (s *session) answer(r *refusal, t target) {
	host := t.plain()
	if r.host != "" {
		host = r.host
	}
	kind := "http_request_error"
	var line string
	switch r.status {
	case http.StatusForbidden:
		kind = "http_request_denied"
		line = host + " is not granted: " + r.rule
		if strings.Contains(r.rule, "not granted") {
			line = r.rule
		}
	case http.StatusBadGateway:
		kind = "destination_unavailable"
		line = host + ": " + r.rule
	default:
		line = "request refused: " + r.rule
	}
	line = printable("proctor: " + line)
	rule := printable(r.rule)
	detail := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(rule)
	s.client.SetWriteDeadline(time.Now().Add(answerTime))
	_, _ = fmt.Fprintf(s.client, "HTTP/1.1 %d %s\r\n"+
		"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n"+
		"Proxy-Status: proctor; error=%s; details=\"%s\"\r\nX-Proctor-Rule: %s\r\n\r\n%s\n",
		r.status, http.StatusText(r.status), len(line)+1, kind, detail, rule, line)
	closeAfter(s.client)
}

// refused records a refusal and answers with it.
func (s *session) refused(r *refusal, t target) {
	s.block(r.rule)
	if r.host != "" {
		s.claim(r.host)
	}
	s.answer(r, t)
}
