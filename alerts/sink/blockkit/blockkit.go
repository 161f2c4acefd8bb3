// Package blockkit says incidents in Slack's Block Kit, within Slack's limits, and so that nothing
// that code chose is markup: no mention, link, format or emoji.
//
// Limits: https://docs.slack.dev/reference/block-kit/blocks (50 blocks a message, 3,000 characters a
// section's text, 150 a header's; they don't say of what kind, so that they are counted in UTF-16, of
// which there are never fewer); escapes: https://docs.slack.dev/messaging/formatting-message-text.
package blockkit

import (
	"fmt"
	"strings"
	"unicode/utf16"

	"github.com/slack-go/slack"

	"proctor/alerts/message"
	"proctor/alerts/sink"
)

const (
	maxBlocks  = 50
	maxSection = 3000
	maxHeader  = 150
	maxText    = 3000 // of the text that is shown where blocks are not
	ellipsis   = "…"
)

// Text is what is shown where blocks are not, as in a notification.
func Text(n *sink.Notice) string { return defuse(message.Headline(n), maxText) }

// Blocks are the whole of it.
func Blocks(n *sink.Notice, o message.Options) []slack.Block {
	header := slack.NewTextBlockObject(slack.PlainTextType, defuse(message.Headline(n), maxHeader), false, false)
	blocks := []slack.Block{slack.NewHeaderBlock(header)}
	if len(n.CatchUp) > 0 {
		return append(blocks, digest(n, o)...)
	}
	// Fields that are short go together; what is long has a section of its own.
	var short strings.Builder
	flush := func() {
		if short.Len() > 0 {
			blocks = append(blocks, section(short.String()))
			short.Reset()
		}
	}
	var links []string
	for _, f := range o.Fields(n) {
		if f.Link {
			links = append(links, "*"+f.Name+"*  "+escape(f.Value, 1000))
			continue
		}
		text := "*" + f.Name + "*  " + code(f.Value, 900)
		if f.Code || strings.Contains(f.Value, "\n") {
			text = "*" + f.Name + "*\n```" + defuse(f.Value, maxSection-len(f.Name)-20) + "```"
		}
		if f.Code || size(short.String())+size(text) > maxSection-10 {
			flush()
		}
		if short.Len() > 0 {
			short.WriteByte('\n')
		}
		short.WriteString(text)
		if f.Code {
			flush()
		}
	}
	flush()
	if len(links) > 0 {
		// Not verbatim: it is a link once Slack has seen it.
		blocks = append(blocks, slack.NewSectionBlock(slack.NewTextBlockObject(slack.MarkdownType, strings.Join(links, "\n"), false, false), nil, nil))
	}
	return blocks[:min(len(blocks), maxBlocks)]
}

// digest is a line for each incident, of as many as there is place for, and what to do.
func digest(n *sink.Notice, o message.Options) (blocks []slack.Block) {
	const each, most = 400, 40 // characters, incidents
	list := n.Digest()
	var b strings.Builder
	for _, i := range list[:min(len(list), most)] {
		line := "• " + code(message.Line(i), each)
		if size(b.String())+size(line) > maxSection-10 {
			blocks = append(blocks, section(b.String()))
			b.Reset()
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(line)
	}
	blocks = append(blocks, section(b.String()))
	b.Reset()
	if more := len(list) - most; more > 0 {
		fmt.Fprintf(&b, "and %d more, none of them more severe\n", more)
	}
	if o.Host != "" {
		b.WriteString("*Host*  " + code(o.Host, 900) + "\n")
	}
	b.WriteString("*Then*  `sudo proctor alerts list`")
	return append(blocks, section(b.String()))
}

func section(text string) slack.Block {
	// Verbatim: Slack is not to make links and channels of what looks like some.
	return slack.NewSectionBlock(slack.NewTextBlockObject(slack.MarkdownType, text, false, true), nil, nil)
}

// code is a value in one line that is shown as it is.
func code(value string, most int) string {
	if value == "" {
		return ""
	}
	return "`" + defuse(value, most) + "`"
}

// defuse is a value that can't end the code that it stands in.
func defuse(value string, most int) string {
	return escape(strings.ReplaceAll(value, "`", "ˋ"), most)
}

// size is what Slack may count of a text at most: characters, or more where it counts in UTF-16.
func size(s string) (n int) {
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// escape is at most so many characters of a text, none of which Slack takes for the beginning of a
// mention or link. It is cut between characters, not within an entity.
func escape(s string, most int) string {
	var b strings.Builder
	n, fits := 0, 0 // fits: bytes that leave room for the ellipsis
	for _, r := range s {
		part := string(r)
		switch r {
		case '&':
			part = "&amp;"
		case '<':
			part = "&lt;"
		case '>':
			part = "&gt;"
		}
		n += size(part)
		if n > most {
			return b.String()[:fits] + ellipsis
		}
		b.WriteString(part)
		if n <= most-size(ellipsis) {
			fits = b.Len()
		}
	}
	return b.String()
}
