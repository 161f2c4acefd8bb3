import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Java's client, which keeps authorities in a store of its own. */
public class Clients {
    public static void main(String[] args) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (String url : new String[] {"https://api.example/", "http://api.example/", "https://key.example/"}) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url)).build();
            System.out.println("java " + url + " " + client.send(request, HttpResponse.BodyHandlers.ofString()).body());
        }
        long began = System.nanoTime();
        try {
            client.send(HttpRequest.newBuilder(URI.create("https://other.example/")).build(), HttpResponse.BodyHandlers.ofString());
            System.out.println("java reached it");
        } catch (java.io.IOException e) {
            System.out.println("java refused " + (System.nanoTime() - began < 2_000_000_000L ? "at once" : "late"));
        }
    }
}
