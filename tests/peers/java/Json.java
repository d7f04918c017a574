import java.util.Collection;
import java.util.Map;

/** JSON of maps, collections, strings, numbers and booleans. */
final class Json {
    private Json() {
    }

    static String of(Object value) {
        StringBuilder text = new StringBuilder();
        write(text, value);
        return text.toString();
    }

    private static void write(StringBuilder text, Object value) {
        if (value instanceof Map) {
            String comma = "";
            text.append('{');
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                text.append(comma);
                write(text, entry.getKey());
                text.append(':');
                write(text, entry.getValue());
                comma = ",";
            }
            text.append('}');
        } else if (value instanceof Collection) {
            String comma = "";
            text.append('[');
            for (Object item : (Collection<?>) value) {
                text.append(comma);
                write(text, item);
                comma = ",";
            }
            text.append(']');
        } else if (value instanceof String) {
            writeString(text, (String) value);
        } else {
            text.append(value);
        }
    }

    private static void writeString(StringBuilder text, String value) {
        text.append('"');
        for (char letter : value.toCharArray()) {
            if (letter == '"' || letter == '\\' || letter < ' ') {
                text.append(String.format("\\u%04x", (int) letter));
            } else {
                text.append(letter);
            }
        }
        text.append('"');
    }
}
