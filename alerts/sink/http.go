package sink

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"proctor/audit"
)

// timeout bounds one request with its answer. What does not answer in it may have been seen.
const timeout = 10 * time.Second

// maxAnswer is how much of an answer is read. Slack's have the whole message in them.
const maxAnswer = 1 << 20

// NewClient makes a client that follows no redirects, so that what is sent goes nowhere else, keeps
// few connections, and whose answers have an end. roots are nil for the system's. Whoever made it
// closes its idle connections.
func NewClient(roots *x509.CertPool) *http.Client {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: timeout, IdleConnTimeout: time.Minute, MaxIdleConns: 4, MaxIdleConnsPerHost: 2,
		ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{Transport: bounded{t}, Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// bounded has answers that end with an error after maxAnswer.
type bounded struct{ *http.Transport }

func (t bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(r)
	if err == nil {
		resp.Body = &boundedBody{resp.Body, maxAnswer}
	}
	return resp, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer has more than %d KiB", maxAnswer>>10)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// Post sends JSON, and returns the answer. Its errors are of type *Error.
func Post(ctx context.Context, c *http.Client, to string, body []byte, header http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, Errorf(Refused, "%w", plain(err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "proctor")
	for name, values := range header {
		req.Header[name] = values
	}
	// Replayed by net/http on a connection that broke, it might be seen twice.
	req.GetBody = nil
	resp, err := c.Do(req)
	if err != nil {
		return nil, Classify(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body) // the status tells, even if the rest is lost
	if resp.StatusCode/100 == 2 {
		return answer, nil
	}
	return answer, Answered(resp.StatusCode, resp.Header, answer)
}

// Answered is the error of an answer that is none of success.
func Answered(status int, header http.Header, answer []byte) *Error {
	e := Errorf(Refused, "answered %d: %q", status, beginning(answer))
	switch {
	case slices.Contains(unfit, status):
		e.Outcome = Unfit
	case status/100 == 2: // nobody who takes notices says it like this
		e.Outcome = Unknown
	case status == http.StatusTooManyRequests:
		// It says that it did not take it; there are some that did.
		e.Outcome, e.RetryAfter = Unknown, retryAfter(header.Get("Retry-After"), time.Now())
	case status/100 == 5, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		e.Outcome, e.RetryAfter = Unknown, retryAfter(header.Get("Retry-After"), time.Now())
	}
	return e
}

// unfit say that it is the message that is wrong, not who sent it or where to.
var unfit = []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}

// Unlike is the error of an answer that means success, but is not like what such a sink says: it may
// be somebody else's.
func Unlike(answer []byte, like string) *Error {
	return Errorf(Unknown, "answered %q, which is not %s: look whether the URL is right, and whether a portal or proxy answers instead", beginning(answer), like)
}

func beginning(answer []byte) string {
	return audit.Text(bytes.TrimSpace(answer[:min(len(answer), 200)])).Printable()
}

// maxRetryAfter is the longest that a sink may ask to be left alone.
const maxRetryAfter = time.Hour

func retryAfter(value string, now time.Time) time.Duration {
	d := time.Duration(0)
	// What is out of range is the largest there is.
	if n, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		d = time.Duration(min(n, uint64(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

// Classify is the error of a request that was not answered.
func Classify(err error) *Error {
	var op *net.OpError
	var dns *net.DNSError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &dns), errors.As(err, &verify):
		return Errorf(NotSent, "%w", plain(err))
	}
	return Errorf(Unknown, "%w", plain(err))
}

// plain is without the URL, which may be a secret.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
