import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Reads lines "class, tab, JSON" and prints what fastjson makes of each: all fields with their values, or ERROR. */
public final class Bodies {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            int tab = line.indexOf('\t');
            Class<?> kind = Class.forName(line.substring(0, tab));
            try {
                Object found = JSON.parseObject(line.substring(tab + 1), kind);
                out.println(JSON.toJSONString(
                    found,
                    SerializerFeature.WriteMapNullValue,
                    SerializerFeature.WriteNonStringKeyAsString,
                    SerializerFeature.DisableCircularReferenceDetect));
            } catch (Exception error) {
                out.println("ERROR");
            }
        }
    }
}
