package oracle

import (
	"path/filepath"
	"strings"
)

// A program is a file of testdata; its name's ending says what runs it.
type program struct {
	file string
}

func (p program) name() string { return strings.TrimSuffix(p.file, filepath.Ext(p.file)) }

var languages = map[string]string{
	".bash": "bash", ".busybox": "busybox", ".js": "node", ".lua": "lua", ".php": "php", ".pl": "perl",
	".py": "python", ".rb": "ruby", ".sh": "sh", ".tcl": "tcl", ".zsh": "zsh",
}

func (p program) language() string { return languages[filepath.Ext(p.file)] }

var programs = []program{
	{file: "bash.bash"},
	{file: "bc-jq-file.sh"},
	{file: "bison-flex.sh"},
	{file: "busybox.busybox"},
	{file: "compressors.sh"},
	{file: "coreutils.sh"},
	{file: "cpio.sh"},
	{file: "curl.sh"},
	{file: "dash.sh"},
	{file: "diff-patch.sh"},
	{file: "edges.py"},
	{file: "editors.sh"},
	{file: "findutils.sh"},
	{file: "gawk.sh"},
	{file: "gcc.sh"},
	{file: "git.sh"},
	{file: "gnuplot.sh"},
	{file: "groff.sh"},
	{file: "lua.lua"},
	{file: "make.sh"},
	{file: "nc-socat.sh"},
	{file: "ninja.sh"},
	{file: "node.js"},
	{file: "openssl.sh"},
	{file: "analysis.py"},
	{file: "perl.pl"},
	{file: "php.php"},
	{file: "python.py"},
	{file: "rsync.sh"},
	{file: "ruby.rb"},
	{file: "sed.sh"},
	{file: "sqlite3.sh"},
	{file: "tar.sh"},
	{file: "tcl.tcl"},
	{file: "wget.sh"},
	{file: "zip.sh"},
	{file: "zsh.zsh"},
}
