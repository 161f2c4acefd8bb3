// Package metrics says in Prometheus' form how a supervisor and its runs are doing. No label has a
// value that a caller or code chose, so that there are no more series than statuses, profiles,
// rules and sinks that operators wrote down.
package metrics

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"proctor/alerts/incident"
	"proctor/alerts/outbox"
	"proctor/audit"
	"proctor/supervisor"
	"proctor/supervisor/box"
	"proctor/supervisor/room"
)

// Source is what is asked at each scrape.
type Source struct {
	Counters func() (map[string]uint64, error)
	Active   func() []string
	Waiting  func() int
	Usage    func() box.Usage
	Room     func() []room.State
	Book     *incident.Book
	Sinks    func() []outbox.Health
}

// Metrics are those of one supervisor.
type Metrics struct {
	registry  *prometheus.Registry
	runs      *prometheus.CounterVec
	durations *prometheus.HistogramVec
	egress    *prometheus.CounterVec
	latency   *prometheus.HistogramVec
}

// New registers what is counted as it happens.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "proctor_runs_total", Help: "Runs that ended, by how and by profile.",
		}, []string{"status", "profile"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "proctor_run_phase_seconds", Help: "How long parts of runs took: wait, prepare, attach, run, seal.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"phase"}),
		egress: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "proctor_egress_attempts_total", Help: "Attempts of runs that ended to reach something, by what became of them.",
		}, []string{"decision"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "proctor_alert_delivery_seconds", Help: "From an incident's last change to when a sink had it.",
			Buckets: []float64{.05, .1, .15, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600},
		}, []string{"sink"}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "proctor_build_info", Help: "1, with the version."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(m.runs, m.durations, m.egress, m.latency, build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, decision := range []string{"allowed", "blocked"} {
		m.egress.WithLabelValues(decision)
	}
	return m
}

// Ended counts a run.
func (m *Metrics) Ended(e *supervisor.Ended) {
	m.runs.WithLabelValues(string(e.Verdict.Status), e.Profile).Inc()
	for phase, took := range e.Phases {
		m.durations.WithLabelValues(phase).Observe(took.Seconds())
	}
	sum := func(list []audit.Destination, more int64) float64 {
		n := more
		for _, d := range list {
			n += int64(d.Count)
		}
		return float64(n)
	}
	m.egress.WithLabelValues("allowed").Add(sum(e.Verdict.Egress.Allowed, e.Verdict.Egress.AllowedMore))
	m.egress.WithLabelValues("blocked").Add(sum(e.Verdict.Egress.Blocked, e.Verdict.Egress.BlockedMore))
}

// Delivered counts how long it took to tell a sink.
func (m *Metrics) Delivered(sink string, took time.Duration) {
	m.latency.WithLabelValues(sink).Observe(took.Seconds())
}

// Handler answers scrapes, from what Source says then.
func (m *Metrics) Handler(s Source, log *slog.Logger) http.Handler {
	m.registry.MustRegister(&collector{s, log})
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

type collector struct {
	s   Source
	log *slog.Logger
}

// Describe implements prometheus.Collector: which there are is seen when they are collected.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("proctor_"+name, help, labels, nil)
}

var (
	active      = desc("runs_active", "Runs that are going on.")
	waiting     = desc("runs_waiting", "Runs that are not let in yet.")
	memory      = desc("running_memory_peak_bytes", "The most memory that running runs have had, each by itself, together.")
	processes   = desc("running_processes_peak", "The most processes and threads that running runs have had, each by itself, together.")
	cpu         = desc("running_cpu_seconds", "Processor time that running runs have had.")
	freeBytes   = desc("room_free_bytes", "Free where the supervisor writes.", "place")
	leastBytes  = desc("room_reserve_bytes", "What must be free for new runs.", "place")
	refusing    = desc("room_refusing", "1 where there are no new runs for want of room.", "place")
	alarms      = desc("alarms_total", "Alarms, by rule.", "rule")
	incidents   = desc("incidents", "Incidents that are remembered, by state and severity.", "state", "severity")
	sinkUp      = desc("sink_up", "1 where the last notice got through, or there was none.", "sink")
	sinkRefused = desc("sink_refused", "1 where a sink refuses and needs to be configured anew.", "sink")
	sinkSent    = desc("sink_sent_total", "Notices that a sink took.", "sink")
	sinkFailed  = desc("sink_failures_total", "Tries at a sink that went wrong.", "sink")
	outboxDepth = desc("outbox_incidents", "Incidents of which a sink does not know all.", "sink")
	outboxAge   = desc("outbox_oldest_seconds", "Since when the one that waits longest does.", "sink")
)

// helps are of counters that the supervisor and the kernel's programs have, by their names.
var helps = map[string]string{
	"runs_incomplete":     "Runs that ended and whose record is not complete, also those that were never started.",
	"events":              "Events of runs that ended: numbers that were given out, those of lost events as well.",
	"events_lost":         "Events of runs that ended that their records don't have.",
	"events_raced":        "Events of runs that ended of which it is not sure what they were about.",
	"acts_folded":         "Acts of runs that ended that are in the count of a repeat and have no event of their own.",
	"connections_blocked": "Attempts of runs that ended to reach something that were refused, questions for names as well.",
	"calls_refused":       "System calls of runs that ended that their boxes did not carry out.",
	"files_read":          "Opens for reading by runs that ended, repeats as well: not how many files.",
	"files_written":       "Opens for writing by runs that ended, repeats as well: not how many files.",

	"audit_limit":       "Events past the limit of their run's record, which is a setting: lost by rule, not for a failure.",
	"socket_refused":    "Sockets of a family, type or protocol that no run may have: refused.",
	"egress_dropped":    "Packets of runs that only the last hook stopped.",
	"no_policy_socket":  "Sockets below the supervisor's cgroup outside of any run: refused.",
	"no_policy_connect": "Connects and sends below the supervisor's cgroup outside of any run: refused.",
	"no_policy_egress":  "Packets from below the supervisor's cgroup outside of any run: dropped.",
	"program_missed":    "Times that the kernel passed over a program of the supervisor's.",
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	counts, err := c.s.Counters()
	if err != nil {
		c.log.Error("counters can't be read", "error", err)
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		switch name {
		case "runs", "goroutines": // are here by other names
		default:
			help := helps[name]
			if help == "" {
				help = "What the kernel's programs could not do as they should: " + name + "."
			}
			counter(desc(name+"_total", help), float64(counts[name]))
		}
	}
	gauge(active, float64(len(c.s.Active())))
	gauge(waiting, float64(c.s.Waiting()))
	use := c.s.Usage()
	gauge(memory, float64(use.MemoryPeak))
	gauge(processes, float64(use.ProcessesPeak))
	gauge(cpu, use.CPU.Seconds())
	for _, r := range c.s.Room() {
		gauge(freeBytes, float64(r.Free), r.Name)
		gauge(leastBytes, float64(r.Least), r.Name)
		gauge(refusing, flag(r.Problem != ""), r.Name)
	}
	for rule, n := range c.s.Book.Raised() {
		counter(alarms, float64(n), rule)
	}
	states := map[[2]string]int{}
	for _, state := range []incident.State{incident.Open, incident.Resolved} {
		for _, severity := range incident.Severities() {
			states[[2]string{string(state), severity}] = 0
		}
	}
	c.s.Book.Select(func(i *incident.Incident) bool {
		states[[2]string{string(i.State), i.Severity.String()}]++
		return false
	})
	for key, n := range states {
		gauge(incidents, float64(n), key[0], key[1])
	}
	for _, h := range c.s.Sinks() {
		gauge(sinkUp, flag(h.Failing.IsZero()), h.Sink)
		gauge(sinkRefused, flag(h.Refused), h.Sink)
		counter(sinkSent, float64(h.Sent), h.Sink)
		counter(sinkFailed, float64(h.Failures), h.Sink)
		gauge(outboxDepth, float64(h.Waiting), h.Sink)
		age := 0.0
		if !h.Oldest.IsZero() {
			age = time.Since(h.Oldest).Seconds()
		}
		gauge(outboxAge, age, h.Sink)
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
