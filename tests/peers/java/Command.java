import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** One line for a peer: words parted by tabs, and among them options like --name=value. */
final class Command {
    private final List<String> words = new ArrayList<>();
    private final Map<String, String> options = new LinkedHashMap<>();

    Command(String line) {
        for (String word : line.split("\t", -1)) {
            if (word.startsWith("--")) {
                int end = word.indexOf('=');
                options.put(word.substring(2, end), word.substring(end + 1));
            } else {
                words.add(word);
            }
        }
    }

    /** Word number `position`, or nothing where there is none. */
    String word(int position) {
        return position < words.size() ? words.get(position) : "";
    }

    int number(int position) {
        return Integer.parseInt(words.get(position));
    }

    List<String> wordsFrom(int position) {
        return words.subList(position, words.size());
    }

    boolean has(String option) {
        return options.containsKey(option);
    }

    String option(String name, String otherwise) {
        return options.getOrDefault(name, otherwise);
    }

    int numberOf(String option, int otherwise) {
        return has(option) ? Integer.parseInt(options.get(option)) : otherwise;
    }

    /** What signs requests with --access and --secret; null without them. */
    RPCHook credentials() {
        return has("access")
            ? new AclClientRPCHook(new SessionCredentials(options.get("access"), options.get("secret"))) : null;
    }
}
