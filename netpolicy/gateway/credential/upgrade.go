package credential

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"time"
)

// upgrade passes on an answer that makes the connection a WebSocket, and then its bytes both
// ways, until one side ends. What comes down is scrubbed without a change of length, as the
// frames say theirs.
func (e *exchange) upgrade(res *http.Response) {
	back, ok := res.Body.(io.ReadWriteCloser)
	if !ok || !upgrades(e.r.Header) || !hasToken(res.Header["Upgrade"], "websocket") {
		e.block(http.StatusBadGateway, fmt.Sprintf("%s: answered 101 with a protocol that was not asked for", e.c.to.Name))
		return
	}
	if len(res.Header["Sec-Websocket-Extensions"]) > 0 {
		e.block(http.StatusBadGateway, fmt.Sprintf("%s: uses WebSocket extensions that were not asked for", e.c.to.Name))
		return
	}
	dropHopByHop(res.Header)
	h, hits := e.c.clean(res.Header)
	e.c.hit("header", hits)
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	if err := e.c.addDown(headerSize(h) + 16); err != nil {
		e.c.answer(e.w, refuse(http.StatusForbidden, "%s", e.c.t.text(err)))
		return
	}
	conn, buffered, err := http.NewResponseController(e.w).Hijack()
	if err != nil {
		e.block(http.StatusBadGateway, "this connection can't become a WebSocket")
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{})
	if err := writeSwitch(buffered.Writer, h); err != nil {
		return
	}
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(&upWriter{e.c, back}, buffered.Reader)
		back.Close() // ends the other direction
		done <- err
	}()
	d := &download{c: e.c, w: conn, stream: e.c.t.scrub.Stream(true), eager: true, late: e.c.t.options.Late, end: func() { conn.Close(); back.Close() }}
	downErr := d.copy(back)
	d.record()
	conn.Close()
	back.Close()
	upErr := <-done
	for _, err := range []error{upErr, downErr} {
		if ends(err) {
			e.c.refuse(e.c.t.text(err), "")
		}
	}
}

func writeSwitch(w *bufio.Writer, h http.Header) error {
	fmt.Fprint(w, "HTTP/1.1 101 Switching Protocols\r\n")
	if err := h.Write(w); err != nil {
		return err
	}
	fmt.Fprint(w, "\r\n")
	return w.Flush()
}

// An upWriter counts what goes up.
type upWriter struct {
	c *connection
	w io.Writer
}

func (u *upWriter) Write(p []byte) (int, error) {
	if err := u.c.addUp(int64(len(p))); err != nil {
		return 0, err
	}
	return u.w.Write(p)
}
