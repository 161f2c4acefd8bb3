package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// imageNameAnnotation is containerd's: the name an image gets when it is imported.
const imageNameAnnotation = "io.containerd.image.name"

// layerFile is a finished layer on disk. It implements partial.CompressedLayer.
type layerFile struct {
	path         string
	digest, diff v1.Hash
	size         int64
}

func (l layerFile) Digest() (v1.Hash, error)            { return l.digest, nil }
func (l layerFile) DiffID() (v1.Hash, error)            { return l.diff, nil }
func (l layerFile) Size() (int64, error)                { return l.size, nil }
func (l layerFile) MediaType() (types.MediaType, error) { return types.OCILayerZStd, nil }
func (l layerFile) Compressed() (io.ReadCloser, error)  { return os.Open(l.path) }

// packLayer writes the tree at root as a zstd layer file at path.
func packLayer(path, root string, epoch time.Time, progress Progress) (layerFile, layerStats, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return layerFile{}, layerStats{}, err
	}
	defer f.Close()
	packed, plain := digest.SHA256.Digester(), digest.SHA256.Digester()
	size := &countWriter{w: io.MultiWriter(f, packed.Hash())}
	// One goroutine: the blocks a concurrent encoder cuts are not promised to stay the same.
	zw, err := zstd.NewWriter(size, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return layerFile{}, layerStats{}, err
	}
	st, err := writeLayer(io.MultiWriter(zw, plain.Hash()), root, epoch, progress)
	if cerr := zw.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return layerFile{}, st, err
	}
	return layerFile{path: path, digest: hash(packed.Digest()), diff: hash(plain.Digest()), size: size.n}, st, nil
}

// assemble makes the image of a recipe around its layer.
func assemble(r *Recipe, arch string, epoch time.Time, layer layerFile) (v1.Image, error) {
	l, err := partial.CompressedToLayer(layer)
	if err != nil {
		return nil, fmt.Errorf("assemble image: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: epoch}
	img, err := mutate.Append(base, mutate.Addendum{
		Layer:     l,
		MediaType: types.OCILayerZStd,
		History:   v1.History{Created: created, CreatedBy: "proctor images build " + r.Name},
	})
	if err != nil {
		return nil, fmt.Errorf("assemble image: %w", err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("assemble image: %w", err)
	}
	cfg = cfg.DeepCopy()
	cfg.Architecture, cfg.OS, cfg.Created = arch, "linux", created
	cfg.Config = v1.Config{User: "1000:1000", WorkingDir: "/scratch", Env: envList(r.Env), Cmd: r.Interpreters[firstLanguage(r)]}
	img, err = mutate.ConfigFile(img, cfg)
	if err != nil {
		return nil, fmt.Errorf("assemble image: %w", err)
	}
	return mutate.Annotations(img, map[string]string{
		ocispec.AnnotationTitle:       r.Name,
		ocispec.AnnotationDescription: r.Description,
		ocispec.AnnotationCreated:     epoch.Format(time.RFC3339),
	}).(v1.Image), nil
}

func firstLanguage(r *Recipe) string {
	if _, ok := r.Interpreters["sh"]; ok {
		return "sh"
	}
	return slices.Sorted(maps.Keys(r.Interpreters))[0]
}

func envList(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

// writeArchive writes an OCI image layout with one image as a tar file and returns the archive's digest and size.
func writeArchive(path string, img v1.Image, layer layerFile, ref func(digest.Digest) string, epoch time.Time, progress Progress) (manifest, sum digest.Digest, size int64, err error) {
	rawManifest, err := img.RawManifest()
	if err != nil {
		return "", "", 0, fmt.Errorf("write archive: %w", err)
	}
	rawConfig, err := img.RawConfigFile()
	if err != nil {
		return "", "", 0, fmt.Errorf("write archive: %w", err)
	}
	manifest = digest.FromBytes(rawManifest)
	index, err := json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{{
			MediaType:   ocispec.MediaTypeImageManifest,
			Digest:      manifest,
			Size:        int64(len(rawManifest)),
			Annotations: map[string]string{imageNameAnnotation: ref(manifest)},
		}},
	})
	if err != nil {
		return "", "", 0, fmt.Errorf("write archive: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return "", "", 0, err
	}
	defer f.Close()
	sha := digest.SHA256.Digester()
	out := &countWriter{w: io.MultiWriter(f, sha.Hash())}
	a := archive{tw: tar.NewWriter(out), epoch: epoch}
	a.dir("blobs/")
	a.dir("blobs/sha256/")
	a.blob(rawManifest)
	a.blob(rawConfig)
	a.file("blobs/sha256/"+layer.digest.Hex, layer.size, func(w io.Writer) error { return layer.copyTo(w, progress) })
	a.bytes(ocispec.ImageLayoutFile, []byte(`{"imageLayoutVersion":"`+ocispec.ImageLayoutVersion+`"}`))
	a.bytes(ocispec.ImageIndexFile, index)
	if a.err == nil {
		a.err = a.tw.Close()
	}
	if a.err == nil {
		a.err = f.Sync()
	}
	if a.err != nil {
		return "", "", 0, fmt.Errorf("write archive: %w", a.err)
	}
	return manifest, sha.Digest(), out.n, nil
}

func (l layerFile) copyTo(w io.Writer, progress Progress) error {
	f, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer f.Close()
	step := Step{Phase: "write archive", Total: l.size, Unit: "bytes"}
	_, err = io.Copy(w, &progressReader{r: f, step: step, progress: progress})
	return err
}

// archive writes tar entries until the first error, which it keeps.
type archive struct {
	tw    *tar.Writer
	epoch time.Time
	err   error
}

func (a *archive) dir(name string) {
	a.entry(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755})
}

func (a *archive) blob(data []byte) { a.bytes("blobs/sha256/"+digest.FromBytes(data).Encoded(), data) }

func (a *archive) bytes(name string, data []byte) {
	a.file(name, int64(len(data)), func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(data))
		return err
	})
}

func (a *archive) file(name string, size int64, write func(io.Writer) error) {
	a.entry(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size})
	if a.err == nil {
		a.err = write(a.tw)
	}
}

func (a *archive) entry(h *tar.Header) {
	h.ModTime = a.epoch
	if a.err == nil {
		a.err = a.tw.WriteHeader(h)
	}
}

func hash(d digest.Digest) v1.Hash {
	return v1.Hash{Algorithm: d.Algorithm().String(), Hex: d.Encoded()}
}

type countWriter struct {
	w io.Writer
	n int64
}

func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// progressReader reports how much has been read.
type progressReader struct {
	r        io.Reader
	step     Step
	progress Progress
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if n > 0 {
		p.step.Done += int64(n)
		p.progress.report(p.step)
	}
	return n, err
}
