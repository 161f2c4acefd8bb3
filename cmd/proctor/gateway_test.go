package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proctor/audit"
	"proctor/testenv"
)

// withGateway starts a supervisor whose gateways are a shell script.
func withGateway(t *testing.T, script string) *supervisor {
	t.Helper()
	s := prepareSupervisor(t)
	lib := filepath.Join(s.dir, "lib")
	if err := os.Mkdir(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(s.bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "proctor-gateway" {
			if err := os.Symlink(filepath.Join(s.bin, e.Name()), filepath.Join(lib, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(lib, "proctor-gateway"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	s.flags = []string{"--lib-dir", lib}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// A gateway that was taken over harms its own run alone, whatever it tells, and for how long.
func TestGatewayTakenOver(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	const ready = "read -r config <&3; echo '{\"ready\":{}}' >&3\n"
	const told = `{"query":{"name":"x.example","type":"A","protocol":"udp","server":"192.0.2.53:53","client_port":0,"decision":"blocked","rule":"r","code":"NXDOMAIN"}}`

	t.Run("does not end", func(t *testing.T) {
		s := withGateway(t, ready+"while echo '"+told+"' >&3; do sleep 0.01; done")
		began := time.Now()
		v := s.verdict(t, "sh", "true")
		if v.Status != audit.StatusError || !strings.Contains(v.Reason, "the gateway does not end") {
			t.Errorf("%s: %s", v.Status, v.Reason)
		}
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("it took %s", took)
		}
		s.status(t) // it is still there
	})
	t.Run("tells often", func(t *testing.T) {
		s := withGateway(t, ready+"sleep 0.5; while echo '"+told+"' >&3; do :; done")
		testRecordBound(t, s)
	})
	t.Run("tells much", func(t *testing.T) {
		large := strings.Replace(told, "x.example", strings.Repeat("x", 100_000), 1)
		s := withGateway(t, ready+"sleep 0.5; while echo '"+large+"' >&3; do :; done")
		testRecordBound(t, s)
	})
}

func testRecordBound(t *testing.T, s *supervisor) {
	t.Helper()
	v := s.verdict(t, "sh", "sleep 30", "--audit-events", "2000")
	if v.Usage.WallMS > 10_000 || v.Audit.Complete || v.Audit.LostByKind[audit.KindQuery] == 0 {
		t.Errorf("%s: %s; it took %d ms, record complete %v, lost %v", v.Status, v.Reason, v.Usage.WallMS, v.Audit.Complete, v.Audit.LostByKind)
	}
	info, err := os.Stat(filepath.Join(s.dir, "state", "runs", v.Run, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 3<<20 {
		t.Errorf("the record has %d bytes", info.Size())
	}
}
