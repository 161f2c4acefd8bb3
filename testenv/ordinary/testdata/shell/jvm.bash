# The JVM with each of its collectors, and its tools' usual options.
set -eu
cat > Hello.java <<'J'
public class Hello {
    public static void main(String[] a) {
        long n = 0;
        for (int i = 0; i < 3000; i++) n += new byte[50_000].length;
        System.out.println("hello " + n);
    }
}
J
javac Hello.java
java -version 2> version
grep -q 'openjdk version' version
for gc in Serial Parallel G1 Z Shenandoah; do
    for more in -Xmx128m "-Xmx128m -XX:+AlwaysPreTouch"; do
        [ "$(java -XX:+Use${gc}GC $more -cp . Hello)" = "hello 150000000" ] || { echo "$gc $more"; exit 1; }
    done
done
[ "$(java -Xint -Xmx64m Hello)" = "hello 150000000" ]
[ "$(echo 'System.out.println(6*7)' | jshell -s - 2> log)" = 42 ]
echo ok
