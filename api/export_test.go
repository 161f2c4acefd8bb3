package api

// of is what a caller has.
func (b *budget) of(uid uint32) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used[uid]
}
