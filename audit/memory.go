package audit

import "unsafe"

// memory is about how many bytes of memory events hold: the structures that they point to and
// the text that the code chose, which is what grows. What events share counts for each.
func memory(events []Event) int {
	n := 0
	for i := range events {
		n += events[i].memory()
	}
	return n
}

func (e *Event) memory() int {
	n := int(unsafe.Sizeof(*e)) + len(e.Run)
	if p := e.Process; p != nil {
		n += int(unsafe.Sizeof(*p)) + len(p.Comm) + len(p.File) + texts(p.Argv)
	}
	if e.Repeat != nil {
		n += int(unsafe.Sizeof(*e.Repeat))
	}
	switch {
	case e.Open != nil:
		o := e.Open
		n += int(unsafe.Sizeof(*o)) + len(o.Path) + len(o.Dir) + texts(o.Flags)
	case e.Exec != nil:
		x := e.Exec
		n += int(unsafe.Sizeof(*x)) + len(x.File) + len(x.Script) + texts(x.Argv) + texts(x.Env) + len(x.Dir)
	case e.Fork != nil:
		n += int(unsafe.Sizeof(*e.Fork))
	case e.Exit != nil:
		n += int(unsafe.Sizeof(*e.Exit))
	case e.Net != nil:
		n += int(unsafe.Sizeof(*e.Net)) + len(e.Net.Name) + len(e.Net.Host)
	case e.Change != nil:
		c := e.Change
		n += int(unsafe.Sizeof(*c)) + len(c.Path) + len(c.Dir) + len(c.To) + len(c.ToDir) + len(c.Target) + len(c.Attribute)
	case e.Refused != nil:
		n += int(unsafe.Sizeof(*e.Refused)) + texts(e.Refused.Args)
	case e.Query != nil:
		q := e.Query
		n += int(unsafe.Sizeof(*q)) + len(q.Name) + len(q.Answers)*int(unsafe.Sizeof(q.Server))
	case e.Flow != nil:
		f := e.Flow
		n += int(unsafe.Sizeof(*f)) + len(f.Name) + len(f.Claimed) + len(f.Error)
	case e.Scrub != nil:
		n += int(unsafe.Sizeof(*e.Scrub)) + len(e.Scrub.Name)
	case e.Start != nil:
		n += int(unsafe.Sizeof(*e.Start)) + texts(e.Start.Argv) + texts(e.Start.Egress)
		for i := range e.Start.Inputs {
			n += int(unsafe.Sizeof(e.Start.Inputs[i])) + len(e.Start.Inputs[i].Name)
		}
	case e.End != nil:
		n += int(unsafe.Sizeof(*e.End)) + len(e.End.Reason)
		for i := range e.End.Inputs {
			n += int(unsafe.Sizeof(e.End.Inputs[i])) + len(e.End.Inputs[i].Name)
		}
	}
	return n
}

func texts[T ~string](list []T) int {
	n := 0
	for _, t := range list {
		n += int(unsafe.Sizeof(t)) + len(t)
	}
	return n
}
