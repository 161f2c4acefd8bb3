package config

import (
	"path/filepath"

	"proctor/supervisor/room"
)

// ContainerdRoot is where the private containerd keeps images.
func (c *Config) ContainerdRoot() string { return filepath.Join(c.StateDir, "containerd") }

// Places are where there must be room for a new run. store is where containerd keeps images;
// empty: not known.
func (c *Config) Places(store string) []room.Place {
	places := []room.Place{
		{Name: "state directory", Dir: c.StateDir, Bytes: int64(c.Reserve.State), Inodes: int64(c.Reserve.Inodes)},
		// Where it is another file system, or read-only by itself.
		{Name: "directory of records", Dir: filepath.Join(c.StateDir, "runs"), Bytes: int64(c.Reserve.State), Inodes: int64(c.Reserve.Inodes)},
	}
	if store != "" {
		places = append(places, room.Place{Name: "image store", Dir: store, Bytes: int64(c.Reserve.State), Inodes: int64(c.Reserve.Inodes)})
	}
	return append(places, room.Place{Name: "run directory", Dir: c.RunDir, Bytes: int64(c.Reserve.Run), Inodes: int64(c.Reserve.Inodes)})
}
