// Package webhook tells incidents to any program that takes JSON by HTTP.
//
// A request is signed: the header Proctor-Signature is "t=SECONDS,v1=HEX", where SECONDS is the
// time since 1970 and HEX the HMAC-SHA256, by the shared secret, of SECONDS, a full stop and the body.
// A receiver refuses what is more than some minutes old, and compares in constant time. The header
// Proctor-Delivery is the same for each try of one notice, and no other's: who has seen it has seen
// the notice.
package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/message"
	"proctor/alerts/sink"
	"proctor/netpolicy/secret"
)

// The headers.
const (
	SignatureHeader = "Proctor-Signature"
	DeliveryHeader  = "Proctor-Delivery"
)

// Options of New.
type Options struct {
	URL     string
	Secret  secret.Secret // requests are signed by
	Client  *http.Client
	Message message.Options
}

type hook struct{ o Options }

// New returns a sink. Nothing is sent yet.
func New(o Options) sink.Sink { return sink.Guarded(hook{o}, secret.New([]byte(o.URL)), o.Secret) }

func (hook) Traits() sink.Traits { return sink.Traits{} }

// A Body is what is sent.
type Body struct {
	Version   int                  `json:"version"` // 1
	What      sink.What            `json:"what"`    // opened, updated, resolved, reopened or test; digests: opened
	Host      string               `json:"host"`
	Title     string               `json:"title"`
	Incidents []*incident.Incident `json:"incidents"` // one, or all that came while this was out of reach, the most severe first
}

func (h hook) Send(ctx context.Context, n *sink.Notice) (json.RawMessage, error) {
	list := []*incident.Incident{n.Incident}
	if len(n.CatchUp) > 0 {
		list = n.Digest()
	}
	for k, i := range list {
		c := *i
		c.Deliveries = nil // is ours
		if h.o.Message.CodeLines == 0 {
			c.Runs = append([]incident.Run{}, c.Runs...)
			for r := range c.Runs {
				c.Runs[r].Code = ""
			}
		}
		list[k] = &c
	}
	body, err := json.Marshal(Body{Version: 1, What: n.What, Host: h.o.Message.Host, Title: message.Headline(n), Incidents: list})
	if err != nil {
		return nil, sink.Errorf(sink.Refused, "%w", err)
	}
	_, err = sink.Post(ctx, h.o.Client, h.o.URL, body, http.Header{
		SignatureHeader: {Sign(h.o.Secret, time.Now(), body)},
		DeliveryHeader:  {delivery(n)},
	})
	return nil, err
}

// delivery is the same for one notice, and for no other: an incident that has grown since is one.
func delivery(n *sink.Notice) string {
	switch {
	case n.What == sink.Test:
		return "test-" + rand.Text()
	case len(n.CatchUp) > 0:
		h := sha256.New()
		for _, i := range n.Digest() {
			fmt.Fprintf(h, "%s-%d\n", i.ID, i.Revision)
		}
		return fmt.Sprintf("digest-%x-%s", h.Sum(nil)[:16], n.What)
	}
	return fmt.Sprintf("%s-%d-%s", n.Incident.ID, n.Incident.Revision, n.What)
}

// Sign is the signature of a body at a time.
func Sign(key secret.Secret, at time.Time, body []byte) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key.Reveal())
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}
