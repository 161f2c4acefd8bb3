import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.stream.*;
import com.sun.net.httpserver.HttpServer;

/** What programs do with the JVM. */
public class Standard {
    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    public static void main(String[] args) throws Exception {
        // Threads and pools.
        var pool = Executors.newFixedThreadPool(32);
        var counter = new AtomicInteger();
        var futures = IntStream.range(0, 1000).mapToObj(i -> pool.submit(counter::incrementAndGet)).toList();
        for (var f : futures) f.get();
        pool.shutdown();
        check(counter.get() == 1000, "pool");
        check(IntStream.range(0, 1_000_000).parallel().filter(i -> i % 7 == 0).count() == 142858, "parallel stream");
        check(CompletableFuture.supplyAsync(() -> 42).get(10, TimeUnit.SECONDS) == 42, "future");
        var timer = Executors.newScheduledThreadPool(1);
        var latch = new CountDownLatch(5);
        timer.scheduleAtFixedRate(latch::countDown, 0, 10, TimeUnit.MILLISECONDS);
        check(latch.await(10, TimeUnit.SECONDS), "timer");
        timer.shutdownNow();

        // Garbage, for the collector; far more than the run may have at a time.
        long sum = 0;
        for (int i = 0; i < 20_000; i++) sum += new byte[100_000].length;
        check(sum == 2_000_000_000L, "garbage");

        // Files.
        var file = Path.of("données.txt");
        Files.writeString(file, "naïve 日本語");
        check(Files.readString(file).endsWith("語"), "text");
        try (var channel = FileChannel.open(Path.of("mapped"), StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            var map = channel.map(FileChannel.MapMode.READ_WRITE, 0, 1 << 20);
            map.put(0, (byte) 7);
            map.force();
            try (var lock = channel.tryLock()) { check(lock != null, "lock"); }
        }
        var temporary = Files.createTempFile("x", ".tmp");
        Files.move(temporary, Path.of("moved"), StandardCopyOption.REPLACE_EXISTING);
        Files.copy(Path.of("moved"), Path.of("/outputs/copied"));
        try (var watch = FileSystems.getDefault().newWatchService()) {
            Path.of(".").register(watch, StandardWatchEventKinds.ENTRY_CREATE);
            Files.writeString(Path.of("watched"), "x");
            check(watch.poll(10, TimeUnit.SECONDS) != null, "watch");
        }
        check(Path.of(System.getProperty("user.home")).equals(Path.of("/scratch")), "home " + System.getProperty("user.home"));
        check(System.getProperty("user.name").equals("agent"), "name");

        // Children.
        var process = new ProcessBuilder("sh", "-c", "cat; exit 3").start();
        try (var in = process.getOutputStream()) { in.write("through".getBytes()); }
        check(new String(process.getInputStream().readAllBytes()).equals("through") && process.waitFor() == 3, "child");
        var sleeper = new ProcessBuilder("sleep", "60").start();
        sleeper.destroyForcibly();
        check(sleeper.waitFor() == 137, "killed child");
        check(ProcessHandle.current().pid() > 1 && ProcessHandle.allProcesses().count() >= 1, "handles");

        // A server and its client.
        var server = HttpServer.create(new InetSocketAddress(0), 0);
        server.createContext("/", e -> {
            e.sendResponseHeaders(200, 5);
            try (var out = e.getResponseBody()) { out.write("hello".getBytes()); }
        });
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
        var client = HttpClient.newHttpClient();
        for (var host : List.of("127.0.0.1", "[::1]", "localhost")) {
            var uri = URI.create("http://" + host + ":" + server.getAddress().getPort() + "/");
            check(client.send(HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofString()).body().equals("hello"), host);
        }
        server.stop(0);
        ((ExecutorService) server.getExecutor()).shutdownNow();
        try (var unix = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            unix.bind(UnixDomainSocketAddress.of("java.sock"));
            try (var c = SocketChannel.open(UnixDomainSocketAddress.of("java.sock")); var s = unix.accept()) {
                c.write(ByteBuffer.wrap("x".getBytes()));
                check(s.read(ByteBuffer.allocate(1)) == 1, "unix socket");
            }
        }
        try (var s = new Socket()) {
            s.connect(new InetSocketAddress("198.51.100.7", 80), 5000);
            throw new AssertionError("reached the outside");
        } catch (SocketException e) {
            check(e.getMessage().contains("not permitted"), e.getMessage());
        }
        check(InetAddress.getLocalHost().isLoopbackAddress(), "local host");
        try {
            InetAddress.getByName("no.such.example");
            throw new AssertionError("the resolver answered");
        } catch (UnknownHostException expected) { }

        check(Runtime.getRuntime().availableProcessors() == Integer.parseInt(args[0]), "processors " + Runtime.getRuntime().availableProcessors());
        check(ZonedDateTime.of(2024, 7, 1, 12, 0, 0, 0, ZoneId.of("America/New_York")).getOffset().getTotalSeconds() == -4 * 3600, "zones");
        check(new java.security.SecureRandom().nextInt() != new java.security.SecureRandom().nextInt() , "random");
        System.gc();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("ok")));
    }
}
