package container

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// socketBytes is what a netlink socket costs the kernel besides what waits in it.
const socketBytes = 4096

// Uncharged implements box.Box: the netlink sockets in the box's network namespace, with the
// answers that wait in them. Code needs some to list its interfaces; the kernel charges what
// they hold to nobody.
func (b *containerBox) Uncharged(enough int64) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/net/netlink", b.pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return 0, nil // init is gone, and all that was the box's with it
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return netlinkBytes(f, enough)
}

// netlinkBytes reads no further than to where the sum is more than enough: there may be millions.
func netlinkBytes(r io.Reader, enough int64) (sum int64, err error) {
	lines := bufio.NewScanner(r)
	lines.Scan() // the header: sk Eth Pid Groups Rmem Wmem ...
	for lines.Scan() && sum <= enough {
		f := strings.Fields(lines.Text())
		if len(f) < 6 {
			return sum, fmt.Errorf("/proc/net/netlink: line %.60q is not understood", lines.Text())
		}
		sum += socketBytes
		for _, n := range f[4:6] {
			v, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				return sum, fmt.Errorf("/proc/net/netlink: %w", err)
			}
			sum += v
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) {
		return sum, err
	}
	return sum, nil
}
