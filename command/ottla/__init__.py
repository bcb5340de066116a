"""The command `ottla`, fleets on this machine (`ottla local`), and a fleet for tests (`ottla.testing`).

On top of the other packages: broker, documents, pipeline and operator do not import it.
"""
