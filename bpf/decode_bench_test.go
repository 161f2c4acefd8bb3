package bpf

import (
	"testing"

	"proctor/audit"
)

// BenchmarkDecode is what one event costs between the ring and the journal.
func BenchmarkDecode(b *testing.B) {
	raw := open(3, 0, 0, "/usr/lib/python3/dist-packages/pandas/core/frame.py")
	b.ReportAllocs()
	var e audit.Event
	d := someDecoder()
	for b.Loop() {
		var err error
		if e, err = d.decode(raw); err != nil {
			b.Fatal(err)
		}
	}
	_ = e
}

func BenchmarkOrder(b *testing.B) {
	var o order
	seq := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		for range 1000 {
			seq++
			o.add(audit.Event{Seq: seq})
		}
		if len(o.ready()) != 1000 {
			b.Fatal("not ready")
		}
	}
}
