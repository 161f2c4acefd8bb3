// Package slackbot tells incidents in a Slack channel by a bot's token: one message for each, which
// is edited as it grows, with a thread for what people should be notified of. The bot needs the
// scope chat:write and to be in the channel.
package slackbot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/slack-go/slack"

	"proctor/alerts/message"
	"proctor/alerts/sink"
	"proctor/alerts/sink/blockkit"
	"proctor/netpolicy/secret"
)

// Options of New.
type Options struct {
	Token   secret.Secret
	Channel string // by id, such as C0123456789
	APIURL  string // of its methods, before their names; empty: Slack's
	Client  *http.Client
	Message message.Options
}

type bot struct {
	o   Options
	api *slack.Client
}

// New returns a sink. Nothing is sent yet.
func New(o Options) sink.Sink {
	options := []slack.Option{slack.OptionHTTPClient(once{o.Client})}
	if o.APIURL != "" {
		options = append(options, slack.OptionAPIURL(strings.TrimSuffix(o.APIURL, "/")+"/"))
	}
	return sink.Guarded(&bot{o, slack.New(string(o.Token.Reveal()), options...)}, o.Token, secret.New([]byte(o.APIURL)))
}

// once has no request replayed on a connection that broke, and returns only answers that may be
// Slack's: its others are errors of type *sink.Error.
type once struct{ c *http.Client }

func (o once) Do(r *http.Request) (*http.Response, error) {
	r.GetBody = nil
	if r.Body != nil && r.ContentLength > 0 { // net/http replays what it can rewind
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	resp, err := o.c.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, sink.Answered(resp.StatusCode, resp.Header, answer)
	case err != nil:
		return nil, err
	case !json.Valid(answer):
		return nil, sink.Unlike(answer, "JSON, as Slack answers")
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	return resp, nil
}

func (b *bot) Traits() sink.Traits { return sink.Traits{Edits: true} }

// A reference is where the message is.
type reference struct {
	Channel string `json:"channel"`
	TS      string `json:"ts"`
	// Thread is set where the message is one for many incidents: what follows goes there.
	Thread bool `json:"thread,omitempty"`
}

func (b *bot) Send(ctx context.Context, n *sink.Notice) (json.RawMessage, error) {
	options := []slack.MsgOption{
		slack.MsgOptionText(blockkit.Text(n), false), slack.MsgOptionBlocks(blockkit.Blocks(n, b.o.Message)...),
		slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl(), slack.MsgOptionParse(false), slack.MsgOptionLinkNames(false),
	}
	var ref reference
	if n.Ref != nil {
		if err := json.Unmarshal(n.Ref, &ref); err != nil || ref.TS == "" {
			ref = reference{} // of another kind of sink that had this name
		}
	}
	switch {
	case ref.TS != "" && ref.Thread:
		// Its own message from now on, below the one of many.
		channel, ts, err := b.api.PostMessageContext(ctx, ref.Channel, append(options, slack.MsgOptionTS(ref.TS), slack.MsgOptionBroadcast())...)
		return posted(reference{Channel: channel, TS: ts}, err)
	case ref.TS != "":
		_, ts, _, err := b.api.UpdateMessageContext(ctx, ref.Channel, ref.TS, options...)
		var answer slack.SlackErrorResponse
		if errors.As(err, &answer) && slices.Contains(unfindable, answer.Err) {
			break // somebody deleted it, or it is too old to be edited
		}
		if err = confirmed(ts, err); err == nil && n.Loud {
			// Of an edit nobody is notified. Should this fail, the edit is made again.
			_, ts, err = b.api.PostMessageContext(ctx, ref.Channel, slack.MsgOptionText(blockkit.Text(n), false), slack.MsgOptionTS(ref.TS),
				slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionParse(false), slack.MsgOptionLinkNames(false))
			err = confirmed(ts, err)
		}
		return nil, err
	}
	channel, ts, err := b.api.PostMessageContext(ctx, b.o.Channel, options...)
	return posted(reference{Channel: channel, TS: ts, Thread: len(n.CatchUp) > 0}, err)
}

var unfindable = []string{"message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"}

// posted is what Send returns of a message.
func posted(r reference, err error) (json.RawMessage, error) {
	if err := confirmed(r.TS, err); err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// confirmed is the error of a call. Where Slack has a message, it says at which time.
func confirmed(ts string, err error) error {
	switch {
	case err != nil:
		return classify(err)
	case ts == "":
		return sink.Errorf(sink.Unknown, "answered without the message's ts, as Slack does not: look whether the URL is right")
	}
	return nil
}

// unfit are answers that have to do with the one message.
var unfit = []string{"invalid_blocks", "invalid_blocks_format", "msg_too_long", "msg_blocks_too_long", "no_text"}

// passing are answers that may be others the next time; all others are refusals.
var passing = []string{
	"internal_error", "fatal_error", "service_unavailable", "request_timeout", "ratelimited", "rate_limited", "message_limit_exceeded", "team_added_to_org",
	"accesslimited", "external_channel_migrating", "update_failed",
}

// classify says what is known of a call that went wrong.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var known *sink.Error
	var answer slack.SlackErrorResponse
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &answer):
		o := sink.Refused
		switch {
		case slices.Contains(passing, answer.Err):
			o = sink.Unknown
		case slices.Contains(unfit, answer.Err):
			o = sink.Unfit
		}
		return sink.Errorf(o, "Slack answered %.200q", answer.Err)
	}
	return sink.Classify(err)
}
