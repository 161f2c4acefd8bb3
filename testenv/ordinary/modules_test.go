package ordinary

// A module of CPython's test suite, and what of it is known to fail in a box.
type module struct {
	name  string
	uses  string   // resources that its tests want; default "cpu"
	fails []string // patterns of Class.method
}

// modules are what Debian packs of the tests for what docs/ordinary-code.md lists. It does
// not pack test_sqlite3; python/storage.py covers the subject.
var modules = []module{
	// Threads, processes, events.
	{name: "test_thread"},
	{name: "test_threading"},
	{name: "test_threading_local"},
	{name: "test_threadsignals"},
	{name: "test_queue"},
	{name: "test_sched"},
	{name: "test_subprocess"},
	{name: "test_popen"},
	{name: "test_fork1"},
	{name: "test_wait3"},
	{name: "test_wait4"},
	{name: "test_multiprocessing_fork"},
	{name: "test_multiprocessing_forkserver"},
	{name: "test_multiprocessing_spawn"},
	{name: "test_multiprocessing_main_handling"},
	{name: "test_concurrent_futures"},
	{name: "test_asyncio", fails: noTerminal("test_events.*.test_*pty*")},
	{name: "test_asyncore"},
	{name: "test_signal"},
	{name: "test_eintr"},
	{name: "test_file_eintr"},
	{name: "test_faulthandler"},
	{name: "test_atexit"},
	{name: "test_time"},
	{name: "test_zoneinfo"},

	// The system, and who we are.
	{name: "test_os", fails: noTerminal("FDInheritanceTests.test_openpty")},
	{name: "test_posix"},
	{name: "test_pty", fails: noTerminal("PtyTest.test_fork", "PtyTest.test_master_read", "PtyTest.test_spawn_doesnt_hang")},
	{name: "test_openpty", fails: noTerminal("OpenptyTest.test")},
	{name: "test_resource"},
	{name: "test_pwd"},
	{name: "test_grp"},
	{name: "test_getpass"},
	{name: "test_platform"},
	{name: "test_uuid"},
	{name: "test_locale"},
	{name: "test_c_locale_coercion"},
	{name: "test_utf8_mode"},
	{name: "test_random"},
	{name: "test_ctypes"},

	// Files.
	{name: "test_io"},
	{name: "test_file"},
	{name: "test_fileio"},
	{name: "test_largefile"},
	{name: "test_tempfile"},
	{name: "test_threadedtempfile"},
	{name: "test_mmap"},
	{name: "test_fcntl"},
	{name: "test_shutil"},
	{name: "test_pathlib"},
	{name: "test_posixpath"},
	{name: "test_genericpath"},
	{name: "test_glob"},
	{name: "test_dbm"},
	{name: "test_shelve"},
	{name: "test_gzip"},
	{name: "test_bz2"},
	{name: "test_lzma"},
	{name: "test_zlib"},
	{name: "test_zipfile"},
	{name: "test_tarfile"},

	// Waiting, sockets, servers.
	{name: "test_select"},
	{name: "test_selectors"},
	{name: "test_poll"},
	{name: "test_epoll"},
	{name: "test_socket", fails: noUDPLite},
	{name: "test_socketserver", uses: "cpu,network"},
	{name: "test_httpservers"},
	{name: "test_urllib2_localnet"},
	{name: "test_wsgiref"},
	{name: "test_xmlrpc"},
	{name: "test_ssl"},
	{name: "test_ftplib"},
	{name: "test_smtplib"},
	{name: "test_logging"},
}

// noTerminal names tests that make a pseudo-terminal: a box has none.
func noTerminal(tests ...string) []string { return tests }

// noUDPLite: of datagrams, there is UDP. UDP-Lite is another protocol with code of its own
// in the kernel, and nothing uses it.
var noUDPLite = []string{"*UDPLITE*.*"}
