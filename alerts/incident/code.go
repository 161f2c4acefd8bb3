package incident

// Complete reads the code of incidents that are to have some, and returns how often that was done:
// what was looked at before is to be looked at again if that has changed. It is for who may wait for
// a disk, before anybody is told; those who raise alarms may not.
func (b *Book) Complete() (times uint64) {
	b.completing.Lock()
	defer b.completing.Unlock()
	b.mu.Lock()
	if len(b.codeless) > 0 {
		b.completed++
	}
	times = b.completed
	runs := map[string]string{}
	for id := range b.codeless {
		if i := b.all[id]; i != nil {
			runs[id] = i.Leading().Run
		}
	}
	clear(b.codeless)
	b.mu.Unlock()
	for id, run := range runs {
		code := b.o.Code(run)
		b.mu.Lock()
		if i := b.all[id]; i != nil && i.Lead == run {
			i.Leading().Code = code
			b.dirty[id] = i
		}
		b.mu.Unlock()
	}
	return times
}
