// Package slackhook tells incidents in a Slack channel by an incoming webhook. What is posted by
// one can't be edited, so that there are few messages of an incident.
package slackhook

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/slack-go/slack"

	"proctor/alerts/message"
	"proctor/alerts/sink"
	"proctor/alerts/sink/blockkit"
	"proctor/netpolicy/secret"
)

// Options of New.
type Options struct {
	URL     secret.Secret // who has it may post
	Client  *http.Client
	Message message.Options
}

type hook struct{ o Options }

// New returns a sink. Nothing is sent yet.
func New(o Options) sink.Sink { return sink.Guarded(hook{o}, o.URL) }

func (hook) Traits() sink.Traits { return sink.Traits{} }

func (h hook) Send(ctx context.Context, n *sink.Notice) (json.RawMessage, error) {
	no := false
	blocks := slack.Blocks{BlockSet: blockkit.Blocks(n, h.o.Message)}
	body, err := json.Marshal(&slack.WebhookMessage{Text: blockkit.Text(n), Blocks: &blocks, Parse: "none", UnfurlLinks: &no, UnfurlMedia: &no})
	if err != nil {
		return nil, sink.Errorf(sink.Refused, "%w", err)
	}
	answer, err := sink.Post(ctx, h.o.Client, string(h.o.URL.Reveal()), body, nil)
	// Others that take Slack's webhooks say so in JSON.
	var other struct{ OK, Success bool }
	if answer = bytes.TrimSpace(answer); err == nil && string(answer) != "ok" && (json.Unmarshal(answer, &other) != nil || !other.OK && !other.Success) {
		err = sink.Unlike(answer, `"ok", as Slack answers`)
	}
	return nil, err
}
