package sink

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"proctor/netpolicy/secret"
)

// Guarded returns the sink with errors that have nothing of its secrets in their texts, whoever
// made those: who answers may say back what it was asked. A secret that is a URL is one by its path
// and query. Pieces of fewer than eight bytes may be anything's, and stay.
func Guarded(s Sink, secrets ...secret.Secret) Sink { return guarded{s, secrets} }

type guarded struct {
	Sink
	secrets []secret.Secret
}

func (g guarded) Send(ctx context.Context, n *Notice) (json.RawMessage, error) {
	ref, err := g.Sink.Send(ctx, n)
	if err == nil {
		return ref, nil
	}
	e := As(err)
	// The errors below are left out: their texts are as they were.
	return ref, &Error{Outcome: e.Outcome, RetryAfter: e.RetryAfter, Err: errors.New(redact(e.Error(), g.secrets))}
}

// piece is the least part of a secret that is taken out.
const piece = 8

func redact(text string, secrets []secret.Secret) string {
	pieces := map[string]bool{}
	for _, s := range secrets {
		for _, form := range forms(string(s.Reveal())) {
			form = fold(form)
			for k := 0; k+piece <= len(form); k++ {
				pieces[form[k:k+piece]] = true
			}
		}
	}
	var b strings.Builder
	folded, shown, end := fold(text), 0, 0 // end: of what is taken out from shown on
	for k := 0; k+piece <= len(text); k++ {
		if !pieces[folded[k:k+piece]] {
			continue
		}
		if k > end || end == 0 {
			b.WriteString(text[shown:k] + "[redacted]")
		}
		end = k + piece
		shown = end
	}
	return b.String() + text[shown:]
}

// forms are how a secret may stand in a text.
func forms(value string) (all []string) {
	parts := []string{value}
	if u, err := url.Parse(value); err == nil && u.Host != "" {
		parts = []string{u.Path, u.EscapedPath(), u.RawQuery}
		if query, err := url.QueryUnescape(u.RawQuery); err == nil {
			parts = append(parts, query)
		}
	}
	for _, p := range parts {
		quoted := strconv.Quote(p)
		all = append(all, p, url.PathEscape(p), url.QueryEscape(p), quoted[1:len(quoted)-1])
	}
	return all
}

// fold has ASCII letters in lower case, and as many bytes as there were.
func fold(s string) string {
	b := []byte(s)
	for k, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[k] = c + 'a' - 'A'
		}
	}
	return string(b)
}
