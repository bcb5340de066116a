// Prints the name of the subject of each certificate (a file in DER) as Java has it, in UTF-8 and Base64, one line each.
import java.io.FileInputStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;

public class CertificateNames {
    public static void main(String[] paths) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (String path : paths) {
            try (FileInputStream file = new FileInputStream(path)) {
                X509Certificate certificate = (X509Certificate) factory.generateCertificate(file);
                String name = certificate.getSubjectX500Principal().getName();
                System.out.println(Base64.getEncoder().encodeToString(name.getBytes(StandardCharsets.UTF_8)));
            }
        }
    }
}
