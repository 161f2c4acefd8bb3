package audit

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// marshalled is what AppendJSON has to be.
func marshalled(t testing.TB, e *Event) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

var odd = []string{"", "plain", "a\"b\\c", "new\nline", "\x1b[31m", "not\xffutf8", "\u202e\u2028", "日本", "😀\U000e0001", "<&>", "\x00"}

// fill sets every field of a value, each pointer to something, or leaves optional ones out
// by the source's choice.
func fill(v reflect.Value, rnd *rand.Rand) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(rnd.Int64N(1<<33), rnd.Int64N(1e9)).UTC()))
		return
	case netip.Addr:
		all := []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("::ffff:192.0.2.1")}
		v.Set(reflect.ValueOf(all[rnd.IntN(len(all))]))
		return
	}
	if v.Type() == reflect.TypeFor[netip.AddrPort]() {
		v.Set(reflect.ValueOf(netip.AddrPortFrom(netip.MustParseAddr("2001:db8::1"), uint16(rnd.Uint32()))))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), rnd)
		}
	case reflect.Pointer:
		if rnd.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), rnd)
		}
	case reflect.Slice:
		if n := rnd.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n-1))
			for i := range n - 1 {
				fill(v.Index(i), rnd)
			}
		}
	case reflect.String:
		v.SetString(odd[rnd.IntN(len(odd))])
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case reflect.Int32:
		v.SetInt(int64(int32(rnd.Uint32())))
	case reflect.Int, reflect.Int64:
		v.SetInt(rnd.Int64() * int64(rnd.IntN(3)-1))
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rnd.Uint64() >> (64 - v.Type().Bits()) * uint64(rnd.IntN(2)))
	case reflect.Float64:
		v.SetFloat(rnd.Float64() * 1000)
	case reflect.Interface: // a request's limits
	default:
		panic(v.Type().String())
	}
}

func TestAppendJSON(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	details := reflect.TypeFor[Event]()
	for range 3000 {
		e := &Event{}
		fill(reflect.ValueOf(e).Elem(), rnd)
		// One detail at a time, as the record has them.
		var keep []int
		for i := range details.NumField() {
			f := details.Field(i)
			if f.Type.Kind() == reflect.Pointer && f.Name != "Process" && f.Name != "Repeat" {
				keep = append(keep, i)
			}
		}
		kept := keep[rnd.IntN(len(keep))]
		for _, i := range keep {
			if i != kept {
				reflect.ValueOf(e).Elem().Field(i).SetZero()
			}
		}
		got, err := e.AppendJSON([]byte("before "))
		if err != nil {
			t.Fatal(err)
		}
		if want := "before " + marshalled(t, e); string(got) != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

func FuzzAppendText(f *testing.F) {
	for _, s := range odd {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var back Text
		data := appendText(nil, Text(s))
		if err := json.Unmarshal(data, &back); err != nil || string(back) != s {
			t.Fatalf("%q became %s, and that %q: %v", s, data, back, err)
		}
		if bytes.ContainsAny(data, "\n\x1b\x00") {
			t.Fatalf("%q became %q", s, data)
		}
	})
}

func someOpen() *Event {
	return &Event{
		Run: "01a2283e-682d-77ff-8a6d-3f2c4faf599d", Seq: 123456, Time: time.Now().UTC(), Kind: KindOpen,
		Process: &Process{PID: 17, PPID: 2, HostID: 123456, Start: 12345678901234, Comm: "python3"},
		Open:    &Open{Path: "/usr/lib/python3/dist-packages/numpy/core/__init__.py", Access: AccessRead},
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	e := someOpen()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = e.AppendJSON(buf[:0])
	}
}

func BenchmarkMarshal(b *testing.B) {
	e := someOpen()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(e); err != nil {
			b.Fatal(err)
		}
	}
}
