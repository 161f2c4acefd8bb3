// Package wire is what the supervisor and a run's gateway say to each other, over one stream
// socket: a line of JSON each. The first line is the supervisor's [Config]; all that follow
// are the gateway's [Report]s. When the supervisor sends no more, the gateway ends every
// connection, reports it, says [Done], and exits.
//
// The gateway parses what hostile code sends, so its reports are not trusted: [Reader] bounds
// them, and what they say goes into the record as the gateway's word.
package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"proctor/audit"
	"proctor/netpolicy/egress"
)

const (
	// FirstSocket is the descriptor of the first of Config.Sockets in the gateway; the one
	// before it is the stream.
	FirstSocket = 4
	// Control is the descriptor of the stream.
	Control = 3
	// BeatEvery is how often the gateway says that it lives.
	BeatEvery = 500 * time.Millisecond
	// Stalled is the silence after which it is taken for dead. With what it takes to end a run
	// that is less than 5 s.
	Stalled = 3 * time.Second

	maxConfig = 16 << 20
	maxReport = 256 << 10 // with the end of its line
	// Of a report that would be longer, each text keeps so many bytes, and so many answers are
	// kept. In JSON a byte takes six at most.
	maxText    = 4 << 10
	maxAnswers = 64
)

// Config is all that a gateway knows.
type Config struct {
	Run       string            `json:"run"`
	UID       uint32            `json:"uid"` // user and group that it becomes; nobody else's
	Policy    egress.Policy     `json:"policy"`
	Secrets   map[string][]byte `json:"secrets"`   // by the name of their credential
	Resolvers []netip.AddrPort  `json:"resolvers"` // the host's, in order
	Host      []netip.Addr      `json:"host"`      // the host's own addresses, which a name leads to only where a range is granted, too
	Own       []netip.Addr      `json:"own"`       // the run's own addresses, besides loopback ones
	Roots     []byte            `json:"roots"`     // certificates of the authorities that upstreams are verified by, PEM
	Proxy     netip.AddrPort    `json:"proxy"`     // the explicit proxy's address in the run
	Sockets   []Socket          `json:"sockets"`   // by descriptor, from FirstSocket on
}

// Socket says what a descriptor is, as in netpolicy.Socket.
type Socket struct {
	Protocol string `json:"protocol"`
	Family   int    `json:"family"`
	Port     uint16 `json:"port"`
}

// Report is one thing that the gateway tells. At most one field is set; none is a sign of life.
type Report struct {
	Ready *Ready       `json:"ready,omitempty"`
	Query *audit.Query `json:"query,omitempty"`
	Flow  *audit.Flow  `json:"flow,omitempty"`
	Scrub *audit.Scrub `json:"scrub,omitempty"`
	Done  *Done        `json:"done,omitempty"`

	Size int `json:"-"` // of the line that was read
}

// Ready says that every socket is served.
type Ready struct {
	CA []byte `json:"ca,omitempty"` // of the run's own authority, PEM; empty where there are no credentials
}

// Done is the last report.
type Done struct {
	Queries int64 `json:"queries"`
	Flows   int64 `json:"flows"`
}

// ReadConfig reads the first line.
func ReadConfig(r io.Reader) (*Config, error) {
	line, err := readLine(bufio.NewReader(r), maxConfig)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c := &Config{}
	if err := json.Unmarshal(line, c); err != nil {
		return nil, errors.New("configuration: not understood") // the error would quote secrets
	}
	return c, nil
}

// WriteConfig writes the first line.
func WriteConfig(w io.Writer, c *Config) error {
	line, err := json.Marshal(c)
	if err != nil {
		return errors.New("configuration: can't be written")
	}
	if len(line) > maxConfig {
		return fmt.Errorf("configuration: %d bytes, more than %d", len(line), maxConfig)
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// A Writer sends reports from many goroutines.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write sends one report. It waits while the supervisor does not read. Of a report that is
// longer than a [Reader] takes, the texts are clipped, and say so; one that is too long even
// then is an error, and nothing is sent of it.
func (w *Writer) Write(r Report) error {
	line, err := json.Marshal(r)
	if err == nil && len(line) >= maxReport {
		line, err = json.Marshal(r.clipped())
	}
	if err != nil {
		return err
	}
	if len(line) >= maxReport {
		return fmt.Errorf("report: %d bytes, more than %d", len(line)+1, maxReport)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.w.Write(append(line, '\n'))
	return err
}

// clipped returns a copy with no long text in it.
func (r Report) clipped() Report {
	if r.Query != nil {
		q := *r.Query
		q.Name, q.Type, q.Protocol = clip(q.Name), clip(q.Type), clip(q.Protocol)
		q.Decision, q.Rule, q.Code = clip(q.Decision), clip(q.Rule), clip(q.Code)
		if more := len(q.Answers) - maxAnswers; more > 0 {
			q.Answers = q.Answers[:maxAnswers]
			q.Rule += fmt.Sprintf(" (%d answers more)", more)
		}
		r.Query = &q
	}
	if r.Flow != nil {
		f := *r.Flow
		f.Protocol, f.Name, f.Claimed = clip(f.Protocol), clip(f.Name), clip(f.Claimed)
		f.Decision, f.Rule, f.Credential, f.Error = clip(f.Decision), clip(f.Rule), clip(f.Credential), clip(f.Error)
		r.Flow = &f
	}
	if r.Scrub != nil {
		s := *r.Scrub
		s.Credential, s.Name, s.Where = clip(s.Credential), clip(s.Name), clip(s.Where)
		r.Scrub = &s
	}
	return r
}

func clip[T ~string](s T) T {
	if more := len(s) - maxText; more > 0 {
		return s[:maxText] + T(fmt.Sprintf(" (%d bytes more)", more))
	}
	return s
}

// A Reader receives reports.
type Reader struct{ r *bufio.Reader }

// NewReader returns a Reader from r.
func NewReader(r io.Reader) *Reader { return &Reader{bufio.NewReader(r)} }

// Read returns the next report. A line that is too long or no report is an error, after which
// nothing more of it can be believed.
func (r *Reader) Read() (Report, error) {
	line, err := readLine(r.r, maxReport)
	if err != nil {
		return Report{}, err
	}
	var report Report
	if err := json.Unmarshal(line, &report); err != nil {
		return Report{}, fmt.Errorf("report: %w", err)
	}
	report.Size = len(line)
	return report, nil
}

// readLine returns a line of at most that many bytes.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > most:
			return nil, fmt.Errorf("a line of more than %d bytes", most)
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			if err == io.EOF && len(line) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}
