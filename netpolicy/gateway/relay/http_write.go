package relay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
)

// maxInformational bounds the answers with 1xx before the one that counts.
const maxInformational = 64

// hopByHop are fields that are about one connection (RFC 9110, 7.6.1) or about where a message
// ends. The relay writes its own.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate",
	"Te", "Trailer", "Transfer-Encoding", "Content-Length", "Upgrade", "Http2-Settings", "Host",
}

// fields returns the names of the fields that are passed on, in one order.
func fields(h http.Header) []string {
	drop := make(map[string]bool) // as many as the other side likes
	for _, name := range hopByHop {
		drop[name] = true
	}
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			drop[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	var names []string
	for name := range h {
		if !drop[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// writeFields writes them. What has a control character, which a server may send, is left out.
func writeFields(w *bufio.Writer, h http.Header) {
	for _, name := range fields(h) {
		for _, value := range h[name] {
			if strings.IndexFunc(name, notToken) < 0 && !strings.ContainsAny(value, "\r\n\x00") {
				fmt.Fprintf(w, "%s: %s\r\n", name, value)
			}
		}
	}
}

func trailerNames(t http.Header) string {
	var names []string
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// copyBody copies what comes as soon as it comes.
func copyBody(w *bufio.Writer, body io.Reader, chunked bool, trailer func() http.Header) error {
	var to io.Writer = w
	var chunks io.WriteCloser
	if chunked {
		chunks = httputil.NewChunkedWriter(w)
		to = chunks
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if chunked {
		if err := chunks.Close(); err != nil {
			return err
		}
		writeFields(w, trailer())
		fmt.Fprint(w, "\r\n")
	}
	return w.Flush()
}

// send writes a request anew. What it says about where it goes and where it ends was read
// once, and is written in the one way that everybody reads alike.
func (h *httpConn) send(req *http.Request, hd *head, body io.Reader) error {
	w := h.ubw
	host := h.t.host()
	if _, ported, _ := parseTarget(hd.host, h.t.port); ported || h.t.port != 80 {
		host = h.t.String()
	}
	fmt.Fprintf(w, "%s %s HTTP/1.%d\r\nHost: %s\r\n", hd.method, hd.uri, hd.minor, host)
	writeFields(w, req.Header)
	switch {
	case len(hd.upgrade) > 0:
		fmt.Fprint(w, "Connection: Upgrade\r\nUpgrade: websocket\r\n")
	case req.Close || h.single:
		fmt.Fprint(w, "Connection: close\r\n")
	}
	if len(req.Trailer) > 0 {
		fmt.Fprintf(w, "Trailer: %s\r\n", trailerNames(req.Trailer))
	}
	switch {
	case hd.chunked:
		fmt.Fprint(w, "Transfer-Encoding: chunked\r\n")
	case hd.length != "":
		fmt.Fprintf(w, "Content-Length: %d\r\n", req.ContentLength)
	}
	fmt.Fprint(w, "\r\n")
	if err := w.Flush(); err != nil {
		return err
	}
	return copyBody(w, body, hd.chunked, func() http.Header { return req.Trailer })
}

// An answered request.
type answered struct {
	begun    bool // something of the answer has been written
	complete bool // all of it
	switched bool // it is a 101
	keep     bool // the connection goes on
	err      error
}

// receive passes on the answer to a request, with what comes before it.
func (h *httpConn) receive(req *http.Request, hd *head, body *requestBody) (a answered) {
	w := bufio.NewWriterSize(h.s.client, 32<<10)
	room := maxResponseHead
	for range maxInformational {
		n, err := h.answerHead(room)
		if err != nil {
			a.err = errorOfServer(err)
			return a
		}
		room -= n
		resp, err := http.ReadResponse(h.ubr, req)
		if err != nil {
			a.err = errorOfServer(err)
			return a
		}
		switch {
		case resp.StatusCode == http.StatusSwitchingProtocols:
			if len(hd.upgrade) == 0 || !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") {
				a.err = errors.New("the server switches to a protocol that was not asked for")
				return a
			}
			a.begun = true
			writeStatus(w, resp)
			fmt.Fprint(w, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			a.err = w.Flush()
			a.complete = a.err == nil
			a.keep, a.switched = a.complete, a.complete
			return a
		case resp.StatusCode < 200:
			if hd.minor == 0 {
				continue
			}
			writeStatus(w, resp)
			fmt.Fprint(w, "\r\n")
			if a.err = w.Flush(); a.err != nil {
				return a
			}
			continue
		}
		h.final(w, req, hd, body, resp, &a)
		return a
	}
	a.err = fmt.Errorf("more than %d informational answers", maxInformational)
	return a
}

// answerHead waits for the whole head of an answer, and leaves it in the reader: nothing is
// made of one that is too long. It returns its length in bytes, of which there may be most.
func (h *httpConn) answerHead(most int) (int, error) {
	line, seen := 0, 0 // where a line begins, and up to where there is no end of it
	for lines := 0; ; {
		if seen == h.ubr.Size() {
			h.growReader()
		}
		if _, err := h.ubr.Peek(seen + 1); errors.Is(err, io.EOF) && seen > 0 {
			return seen, nil // there is no more to come, and what there is was looked at
		} else if err != nil {
			return 0, err
		}
		b, _ := h.ubr.Peek(min(h.ubr.Buffered(), most))
		if i := bytes.IndexByte(b[seen:], '\n'); i < 0 {
			seen = len(b)
		} else {
			seen += i + 1
			text := bytes.TrimSuffix(b[line:seen-1], []byte("\r"))
			if len(text) == 0 {
				return seen, nil
			}
			// Programs do not agree whether it ends the head.
			if len(bytes.Trim(text, " \t")) == 0 {
				return 0, errAnswerBlank
			}
			if lines++; lines-1 > maxFields {
				return 0, errAnswerFields
			}
			line = seen
		}
		if seen >= most {
			return 0, errAnswerLong
		}
	}
}

// growReader makes room for a long head.
func (h *httpConn) growReader() {
	b, _ := h.ubr.Peek(h.ubr.Buffered())
	h.ubr = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(slices.Clone(b)), h.server), maxResponseHead)
}

// errorOfServer gives the end of a stream the name that it has where an answer was expected.
func errorOfServer(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the server ended the connection without a whole answer")
	}
	return err
}

func writeStatus(w *bufio.Writer, resp *http.Response) {
	reason := strings.TrimLeft(strings.TrimPrefix(resp.Status, strconv.Itoa(resp.StatusCode)), " ")
	fmt.Fprintf(w, "HTTP/1.1 %03d %s\r\n", resp.StatusCode, strings.Map(func(r rune) rune {
		if r < ' ' {
			return -1
		}
		return r
	}, reason))
	writeFields(w, resp.Header)
}

// final passes on the answer that counts.
func (h *httpConn) final(w *bufio.Writer, req *http.Request, hd *head, body *requestBody, resp *http.Response, a *answered) {
	defer resp.Body.Close()
	bodiless := req.Method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	chunked := !bodiless && resp.ContentLength < 0 && hd.minor == 1 && len(resp.TransferEncoding) > 0
	a.keep = !req.Close && !resp.Close && !h.single && hd.minor == 1 &&
		// A client that waits for a 100 may leave the body out now, or not.
		(!hd.expect || body.started.Load()) && len(hd.upgrade) == 0
	a.begun = true
	writeStatus(w, resp)
	switch {
	case chunked:
		fmt.Fprint(w, "Transfer-Encoding: chunked\r\n")
		if len(resp.Trailer) > 0 {
			fmt.Fprintf(w, "Trailer: %s\r\n", trailerNames(resp.Trailer))
		}
	case resp.ContentLength >= 0 && (!bodiless || resp.Header.Get("Content-Length") != ""):
		fmt.Fprintf(w, "Content-Length: %d\r\n", resp.ContentLength)
	case !bodiless:
		a.keep = false
	}
	if !a.keep {
		fmt.Fprint(w, "Connection: close\r\n")
	}
	fmt.Fprint(w, "\r\n")
	if a.err = w.Flush(); a.err != nil || bodiless {
		a.complete = a.err == nil
		return
	}
	a.err = copyBody(w, resp.Body, chunked, func() http.Header { return resp.Trailer })
	a.complete = a.err == nil
}
